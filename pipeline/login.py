"""How jobs and the data source log in: by the properties of Kafka's Java client, as Spark's own connector does.

What knows these properties is imported when there are any: its modules would take most of the time in which a Python
worker of Spark's starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .errors import WrongOptionError

if TYPE_CHECKING:
    from ..security.client_login import ClientLogin

_SECURITY = ("security.", "ssl.", "sasl.")


def is_of_security(name: str) -> bool:
    """Whether a property of the client says how it logs in."""
    return name.startswith(_SECURITY)


def login_in_file(path: str | None) -> dict[str, str]:
    """The properties in a client's file that say how it logs in; none without a file. Raises `WrongOptionError`."""
    if path is None:
        return {}
    from ..cluster.settings.client_properties import ClientPropertiesError, read_properties
    from ..runtime.loop import real_runtime

    try:
        found = read_properties(path, real_runtime())
    except ClientPropertiesError as error:
        raise WrongOptionError(f"{error}.") from None
    return {name: value for name, value in found.items() if is_of_security(name)}


def check_security(properties: Mapping[str, str]) -> None:
    """Raise `WrongOptionError` for a property that would do nothing, such as one of librdkafka."""
    if not properties:
        return
    from ..cluster.settings.client_configs import suspicious_lines

    for sentence in suspicious_lines(properties):
        raise WrongOptionError(f"kafka.{sentence.rstrip('?')}{'?' if sentence.endswith('?') else '.'}")


def login_of_options(properties: Mapping[str, str]) -> ClientLogin | None:
    """How connections of the reader log in; None for PLAINTEXT. Raises `WrongOptionError`."""
    if not properties:
        return None
    from ..cluster.settings.client_properties import ClientPropertiesError, login_of
    from ..runtime.loop import real_runtime

    try:
        return login_of(properties, real_runtime())
    except ClientPropertiesError as error:
        raise _refusal(error) from None


def producer_login(properties: Mapping[str, str]) -> dict[str, str]:
    """How the writer's librdkafka logs in; empty for PLAINTEXT. Raises `WrongOptionError`."""
    if not properties:
        return {}
    from ..cluster.settings.client_properties import ClientPropertiesError, librdkafka_login
    from ..runtime.loop import real_runtime

    try:
        return librdkafka_login(properties, real_runtime())
    except ClientPropertiesError as error:
        raise _refusal(error) from None


def _refusal(error: Exception) -> WrongOptionError:
    return WrongOptionError(f"the kafka.* options of the login are refused: {error}.")
