"""How users of a server, such as the REST proxy and the console, log in at the cluster behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ..cluster.command_line.cluster_options import chosen_client_properties
from ..runtime.ports import Runtime
from .options import WrongConfiguration

if TYPE_CHECKING:
    from ..cluster.http_logins.user_login import UserLogins

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The SASL mechanisms of users who log in by a password."""


def user_logins(mechanism: str, librdkafka: Mapping[str, str], runtime: Runtime) -> UserLogins:
    """Logins by this mechanism, with the TLS of the running command's own login."""
    from ..cluster.client.access.current_login import CURRENT_LOGIN
    from ..cluster.http_logins.user_login import UserLogins

    own = CURRENT_LOGIN.get()
    tls = None if own is None else own.tls
    return UserLogins(mechanism, tls, librdkafka, runtime.secret_bytes, runtime.clock.wall_ms)


def password_mechanism(given: str | None, properties: Mapping[str, str]) -> str:
    """The mechanism that is given, or that of the properties. Raises `UsageError` where users need another one."""
    found = given or properties.get("sasl.mechanism", "")
    if found not in PASSWORD_MECHANISMS:
        raise click.UsageError(f"users log in by a password: name --mechanism, one of {', '.join(PASSWORD_MECHANISMS)}")
    return found


def password_logins(mechanism: str | None, runtime: Runtime, *, has_users: bool | None) -> UserLogins | None:
    """The logins of users, None where there are to be none.

    Unless `has_users` says it, there are where a mechanism is given, or the command itself logs in by a password.
    """
    from ..cluster.settings.client_properties import ClientPropertiesError, read_properties

    if has_users is False:
        if mechanism is not None:
            raise click.UsageError("--mechanism is for --login")
        return None
    path = chosen_client_properties()
    try:
        properties = {} if path is None else read_properties(path, runtime)
    except ClientPropertiesError as error:
        raise WrongConfiguration(str(error)) from None
    if has_users is None and mechanism is None and properties.get("sasl.mechanism") not in PASSWORD_MECHANISMS:
        return None
    return user_logins(password_mechanism(mechanism, properties), {}, runtime)
