"""What the client-side subcommands share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "localhost:9092"


def bootstrap_option(function: F) -> F:
    """`--bootstrap`, as every client takes it."""
    return click.option(
        "-b",
        "--bootstrap",
        envvar="RAFTWERK_BOOTSTRAP",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        metavar="HOST:PORT,...",
        help="Brokers to ask first (environment: RAFTWERK_BOOTSTRAP).",
    )(function)


def json_option(function: F) -> F:
    """`--json`, for scripts."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")(function)


def log_options(function: F) -> F:
    """`--log-level` and `--log-format` of whatever starts nodes."""
    level = click.option(
        "--log-level",
        default="INFO",
        show_default=True,
        envvar="RAFTWERK_LOG_LEVEL",
        type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]),
        help="Of all loggers (environment: RAFTWERK_LOG_LEVEL).",
    )
    line_format = click.option(
        "--log-format",
        default="text",
        show_default=True,
        envvar="RAFTWERK_LOG_FORMAT",
        type=click.Choice(["text", "json"]),
        help="For people, or for what collects logs (environment: RAFTWERK_LOG_FORMAT).",
    )
    return level(line_format(function))


def run_client(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a client; what the cluster refuses becomes one sentence and exit code 1."""
    from ..client_errors import ClientError

    try:
        return asyncio.run(coroutine)
    except (ClientError, OSError) as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None


def print_json(value: object) -> None:
    """One object, one line."""
    click.echo(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def parse_pairs(entries: tuple[str, ...], option: str) -> dict[str, str]:
    """`key=value` options as a dict; exit code 2 when one has no equals sign."""
    result = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{entry!r} is no key=value", param_hint=option)
        result[key] = value
    return result
