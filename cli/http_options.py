"""Options of the commands that serve HTTP: HTTPS, and how clients log in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..runtime.os_errors import os_words
from ..runtime.ports import Runtime
from .options import WrongConfiguration
from .user_logins import PASSWORD_MECHANISMS, password_mechanism, user_logins

if TYPE_CHECKING:
    from ..cluster.http_logins.user_login import UserLogins

F = TypeVar("F", bound=Callable[..., Any])
_KEY_BEGINS = b"PRIVATE KEY-----"


def authentication_options(function: F) -> F:
    """Add `--authentication` and `--mechanism`."""
    authentication = click.option(
        "--authentication",
        default="none",
        show_default=True,
        type=click.Choice(["none", "basic", "bearer"]),
        help="How clients log in: as users of the cluster, whose rights count.",
    )
    mechanism = click.option(
        "--mechanism",
        type=click.Choice(PASSWORD_MECHANISMS),
        help="The SASL mechanism of --authentication basic at the cluster; default: that of --command-config.",
    )
    return authentication(mechanism(function))


def https_options(function: F) -> F:
    """Add `--certificate` and `--key`."""
    certificate = click.option(
        "--certificate", metavar="FILE", help="Serve by HTTPS with the certificate in this file (PEM)."
    )
    key = click.option(
        "--key", metavar="FILE", help="The key of the certificate (PEM); default: in the file of --certificate."
    )
    return certificate(key(function))


def chosen_logins(
    authentication: str,
    mechanism: str | None,
    properties: Mapping[str, str],
    librdkafka: Mapping[str, str],
    runtime: Runtime,
) -> UserLogins | None:
    """How users log in at the cluster: with the TLS of the command's own login. None if clients do not log in."""
    if authentication == "none":
        if mechanism is not None:
            raise click.UsageError("--mechanism is for --authentication basic")
        return None
    if authentication == "bearer":
        if mechanism is not None:
            raise click.UsageError("--mechanism is for --authentication basic: tokens are for OAUTHBEARER")
        return user_logins("OAUTHBEARER", librdkafka, runtime)
    return user_logins(password_mechanism(mechanism, properties), librdkafka, runtime)


def check_certificate(certificate: str | None, key: str | None, runtime: Runtime) -> None:
    """Tell what is wrong with the files before anything is begun."""
    from ..runtime.tls_contexts import TlsError, TlsMaterial, TlsOptions, server_context

    if certificate is None:
        if key is not None:
            raise click.UsageError("--key is for --certificate")
        return
    chain = pem("--certificate", certificate, runtime)
    secret = chain if key is None else pem("--key", key, runtime)
    if _KEY_BEGINS not in secret:
        raise WrongConfiguration(f"there is no private key in {key or certificate}: name its file with --key")
    try:
        server_context(TlsMaterial(chain, secret), TlsOptions())
    except TlsError as error:
        raise WrongConfiguration(f"--certificate {certificate}, --key {key or certificate}: {error}") from None


def pem(option: str, path: str, runtime: Runtime) -> bytes:
    """What is in a file that an option names."""
    try:
        return runtime.disk.read_bytes(path)
    except OSError as error:
        raise WrongConfiguration(f"{option} {path} cannot be read: {os_words(error)}") from None
