"""What a registry answers to a request that it refuses: an HTTP status, an error code of Confluent's, a sentence."""

from __future__ import annotations


class RegistryError(Exception):
    """A refused request. `code` is Confluent's `error_code`; the first three digits of a long one are the status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = int(str(code)[:3])


def subject_not_found(subject: str) -> RegistryError:
    """There is no such subject, or all its versions are deleted."""
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    """The subject has no such version."""
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(what: str = "Schema") -> RegistryError:
    """No schema has this id, or the subject has no such schema."""
    return RegistryError(40403, f"{what} not found")


def invalid_schema(why: str) -> RegistryError:
    """The text is no schema of its type."""
    return RegistryError(42201, f"Invalid schema: {why}")


def invalid_version(text: str) -> RegistryError:
    """A version in a path that is neither a number from 1 on nor `latest`."""
    return RegistryError(
        42202,
        f"The specified version '{text}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    )


def numbers_out_of_range() -> RegistryError:
    """An id or a version that is no positive number of 32 bits with a sign, as records and frames have them."""
    return RegistryError(422, "The id and the version of a schema are between 1 and 2^31-1")


def schema_too_large() -> RegistryError:
    """The record of a schema is longer than the cluster takes one."""
    return RegistryError(
        42209, "Schema is too large: its record would be longer than max.message.bytes of the topic of schemas allows"
    )


def forwarding_failed(why: str) -> RegistryError:
    """The registry that writes gives no answer."""
    return RegistryError(
        50003,
        f"Error while forwarding the request to the primary: {why}; it may be done or not. If that registry is gone, "
        "another one writes in some seconds: try again",
    )


def unknown_writer(why: str) -> RegistryError:
    """It is not known which registry writes, or it is another one than the request was sent to."""
    return RegistryError(50004, f"Unknown leader of the registries: {why}")
