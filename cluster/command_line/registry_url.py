"""The option of commands that names a schema registry."""

from __future__ import annotations

import click

from .extras import missing_packages, not_installed


def check_registry(url: str | None) -> None:
    """A usage error for a URL that is none, and exit code 1 where what converts data by schemas is not installed."""
    from ...runtime.http.client import url_problem

    if url is None:
        return
    problem = url_problem(url)
    if problem is not None:
        raise click.BadParameter(f"{url!r}: {problem}", param_hint="--registry")
    missing = missing_packages("fastavro", "google.protobuf")
    if missing:
        raise click.ClickException(not_installed(missing, "registry"))
