"""The option of commands that names a schema registry."""

from __future__ import annotations

import click

from .extras import missing_packages, not_installed


def check_registry(url: str | None) -> None:
    """A usage error for a URL that is none, and exit code 1 where what converts data by schemas is not installed.

    The URL may have a user and a password.
    """
    from ...runtime.http.client import url_problem, without_login

    if url is None:
        return
    problem = url_problem(without_login(url))
    if problem is not None:
        raise click.BadParameter(f"{without_login(url)!r}: {problem}", param_hint="--registry")
    missing = missing_packages("fastavro", "google.protobuf")
    if missing:
        raise click.ClickException(not_installed(missing, "registry"))
