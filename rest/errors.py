"""What the proxy answers to a request that it refuses: an HTTP status, an error code of Confluent's, a sentence."""

from __future__ import annotations

from collections.abc import Mapping

from ..cluster.client.client_errors import (
    WHO_IS_DOWN,
    ClientError,
    NotLoggedInError,
    RefusedError,
    UnreachableError,
    WrongCredentialsError,
    is_retriable,
)
from ..cluster.client.error_sentences import SENTENCES
from ..wire.errors import ErrorCode, error_name

BAD_REQUEST = 400
KAFKA_BAD_REQUEST = 40002
AUTHENTICATION_FAILED = 40101
AUTHORIZATION_FAILED = 40301
UNKNOWN_TOPIC_OR_PARTITION = 40403
SCHEMA_REGISTRY_ERROR = 40801
KEY_SCHEMA_MISSING = 42201
VALUE_SCHEMA_MISSING = 42202
JSON_CONVERSION = 42203
INVALID_SCHEMA = 42205
PAYLOAD_ERROR = 42206
SERIALIZATION_ERROR = 42207
BATCH_ERROR = 42208
KAFKA_ERROR = 50002
KAFKA_RETRIABLE_ERROR = 50003
NO_BROKER_ANSWERS = 50302
_NEEDS_RIGHT = "needs the right"

_UNKNOWN_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_AUTHENTICATION = (ErrorCode.SASL_AUTHENTICATION_FAILED,)
_AUTHORIZATION = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_MISTAKES = (
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.INVALID_CONFIG,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.REASSIGNMENT_IN_PROGRESS,
    ErrorCode.SECURITY_DISABLED,
)


class RestError(Exception):
    """A refused request. `code` is Confluent's `error_code`; its first three digits are the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = int(str(code)[:3])

    def as_json(self) -> dict[str, object]:
        """The body of the answer."""
        return {"error_code": self.code, "message": str(self)}


def path_not_found() -> RestError:
    """Nothing is served under this path."""
    return RestError(404, "HTTP 404 Not Found")


def unknown_topic_or_partition() -> RestError:
    """The error of version 3 for a topic or a partition that there is not."""
    return RestError(UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


def topic_not_found() -> RestError:
    """The error of version 2 for a topic that there is not."""
    return RestError(40401, "Topic not found.")


def partition_not_found() -> RestError:
    """The error of version 2 for a partition that the topic has not."""
    return RestError(40402, "Partition not found.")


def kafka_error(code: int, message: str, rights: Mapping[int, str] | None = None) -> RestError:
    """The error for an error code of Kafka's protocol. `rights` are those that lack, by the code that says so."""
    if message.endswith(": "):  # librdkafka's words where the broker has none of its own
        message += error_name(code)
    if rights is not None and code in rights:
        message = f"{message}; it {_NEEDS_RIGHT} {rights[code]}"
    if code in _UNKNOWN_TOPIC:
        return unknown_topic_or_partition()
    if code in _AUTHORIZATION:
        return RestError(AUTHORIZATION_FAILED, message)
    if code in _AUTHENTICATION:
        return RestError(AUTHENTICATION_FAILED, message)
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return RestError(40405, "Consumer group id not found.")
    if code in _MISTAKES:
        return RestError(KAFKA_BAD_REQUEST, message)
    if code in _TOO_LARGE:
        return RestError(413, message)
    if is_retriable(code):
        return RestError(KAFKA_RETRIABLE_ERROR, f"Retriable Kafka error: {message}")
    return RestError(KAFKA_ERROR, f"Kafka error: {message}")


def refused(code: int, what: str, message: str | None = None) -> RestError:
    """The error for an error code in an answer about `what`, with the broker's own message if it has one."""
    if code in _AUTHORIZATION:
        meaning, _ = SENTENCES[code]
        return RestError(AUTHORIZATION_FAILED, f"{what}: {(message or meaning).rstrip('.')} ({error_name(code)})")
    return kafka_error(code, f"{what}: {message or error_name(code)}")


def error_of(error: ClientError) -> RestError:
    """The error for what the cluster's client raises."""
    if isinstance(error, WrongCredentialsError):
        return RestError(AUTHENTICATION_FAILED, f"{error}: {error.way_out}")
    if isinstance(error, NotLoggedInError):
        return RestError(NO_BROKER_ANSWERS, f"{error}: {error.way_out}")
    if isinstance(error, UnreachableError):
        return RestError(NO_BROKER_ANSWERS, f"{error}; {WHO_IS_DOWN}")
    if isinstance(error, RefusedError) and error.is_of_rights:
        return RestError(AUTHORIZATION_FAILED, error.refusal)  # the right that the path needs follows
    if isinstance(error, RefusedError):
        return kafka_error(error.code, str(error))
    return RestError(KAFKA_RETRIABLE_ERROR, f"Retriable Kafka error: {error}")


def naming_right(error: RestError, what: str, right: str) -> RestError:
    """The error, with the right that this needs if it is a refusal for want of one and names none yet."""
    if error.code != AUTHORIZATION_FAILED or not right or _NEEDS_RIGHT in str(error):
        return error
    return RestError(AUTHORIZATION_FAILED, f"{error}; {what} {_NEEDS_RIGHT} {right}")
