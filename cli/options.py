"""Options and helpers that several subcommands share."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import select
import shlex
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..cluster.command_line.cluster_options import (
    COMMAND_CONFIG_VARIABLE,
    chosen_address,
    chosen_client_properties,
    login_is_of_environment,
)
from ..cluster.command_line.cluster_options import bootstrap_option as bootstrap_option
from ..cluster.command_line.cluster_options import directory_option as directory_option
from ..cluster.command_line.commands import Command as Command
from ..cluster.command_line.commands import Group as Group
from ..cluster.command_line.commands import Option as Option
from ..cluster.command_line.commands import WrongConfiguration as WrongConfiguration
from ..cluster.command_line.commands import group_argument as group_argument
from ..cluster.command_line.commands import json_option as json_option
from ..cluster.command_line.commands import topic_argument as topic_argument
from ..cluster.command_line.plural import counted as counted
from ..cluster.command_line.plural import size_text as size_text
from ..runtime.os_errors import os_reason
from .interrupt import Interrupt

if TYPE_CHECKING:
    from ..cluster.client.client_errors import ClientError, NoControllerError, UnreachableError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_LAST_MS = 2**63 - 1
_DIGITS_MAX = 19
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXPLAINED_IN_S = 2.0
"""How long peers are asked to explain an error."""
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


ACKS = {"all": -1, "1": 1}
"""The values of `--acks`."""


def producer_options(function: F) -> F:
    """Add `--acks` and `--compression`."""
    acks = click.option(
        "--acks",
        type=click.Choice(list(ACKS)),
        default="all",
        show_default=True,
        help="Wait for all in-sync replicas, or for the leader alone.",
    )
    compression = click.option(
        "-z",
        "--compression",
        type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
        default="none",
        show_default=True,
        help="How batches are compressed.",
    )
    return acks(compression(function))


def log_options(function: F) -> F:
    """Add `--log-level` and `--log-format`, for commands that start nodes."""
    level = click.option(
        "--log-level",
        default="INFO",
        show_default=True,
        envvar="RAFTWERK_LOG_LEVEL",
        type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]),
        help="The level of all loggers (environment: RAFTWERK_LOG_LEVEL).",
    )
    line_format = click.option(
        "--log-format",
        default="text",
        show_default=True,
        envvar="RAFTWERK_LOG_FORMAT",
        type=click.Choice(["text", "json"]),
        help="Text for people, JSON for log collectors (environment: RAFTWERK_LOG_FORMAT).",
    )
    return level(line_format(function))


@contextmanager
def listening(host: str, port: int) -> Iterator[None]:
    """Serve HTTP on this address: an error of the operating system becomes a sentence that names `--port`."""
    try:
        yield
    except OSError as error:
        reason = os_reason(error)
        way_out = "; --port names another one" if error.errno in (errno.EADDRINUSE, errno.EACCES) else ""
        raise click.ClickException(f"cannot listen on {host}:{port}: {reason}{way_out}") from None


def run_client(coroutine: Coroutine[Any, Any, T], on_interrupt: Callable[[], None] | None = None) -> T:
    """Run a client. An error of the cluster becomes one sentence and exit code 1, a wrong argument exit code 2.

    Ctrl-C ends it with exit code 130, also while an error is explained; `on_interrupt` prints what was done by then.
    """
    interrupt = Interrupt(until_it_runs=True)
    try:
        with _errors_told():
            return asyncio.run(interrupt.cancels(coroutine))
    except (asyncio.CancelledError, KeyboardInterrupt):
        if not interrupt.has_come:
            raise
        if on_interrupt is not None:
            on_interrupt()
        raise click.exceptions.Exit(130) from None
    finally:
        interrupt.restore()


@contextmanager
def _errors_told() -> Iterator[None]:
    """Tell errors of a client in sentences; see `run_client`."""
    from ..cluster.client.client_errors import ClientError, WrongArgumentError
    from ..wire.errors import UnencodableError

    try:
        yield
    except UnicodeEncodeError as error:
        raise WrongConfiguration(f"{error.object!r} is not UTF-8 text, and names have to be") from None
    except UnencodableError as error:
        raise WrongConfiguration(f"a number is too large for Kafka's protocol ({error.__cause__})") from None
    except WrongArgumentError as error:
        raise WrongConfiguration(str(error)) from None
    except (ClientError, OSError) as error:
        if isinstance(error, BrokenPipeError) and is_reader_gone():
            raise  # see LazyGroup
        raise click.ClickException(sentence_of(error)[0]) from None


@contextmanager
def way_out_told(way_out: Callable[[], str | None]) -> Iterator[None]:
    """Tell this way out of a refusal of names or values instead of the usual one, unless it is None."""
    from ..cluster.client.client_errors import RefusedError
    from ..wire.errors import ErrorCode

    try:
        yield
    except RefusedError as error:
        is_of_names = error.code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
        told = way_out() if is_of_names else None
        if told is None:
            raise
        raise error.with_way_out(told) from None


def setting_names_told(resource_type: int, names: Iterable[str]) -> AbstractContextManager[None]:
    """Tell which settings were probably meant by names that resources of this type do not have."""

    def way_out() -> str | None:
        from ..cluster.settings.setting_names import way_out_of_names

        return way_out_of_names(resource_type, names)

    return way_out_told(way_out)


def is_reader_gone() -> bool:
    """Whether standard output is a pipe or a socket that its reader has closed, as `| head` does."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return False
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def sentence_of(error: ClientError | OSError) -> tuple[str, Exception]:
    """The error as a sentence, and what it was found to be: silent peers that take connections are asked."""
    from ..cluster.client.access.current_login import CURRENT_LOGIN
    from ..cluster.client.client_errors import NoControllerError, RefusedError, UnreachableError
    from ..cluster.client.peer_protocol import explained
    from ..wire.errors import ErrorCode

    if isinstance(error, OSError):
        return os_reason(error), error
    if isinstance(error, RefusedError) and error.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER):
        error = _no_controller() or error
    if isinstance(error, NoControllerError):
        return f"{error}; {asyncio.run(_why_no_controller(error))}", error
    if isinstance(error, UnreachableError) and (error.closing or error.silent):
        address = chosen_address()
        is_local = address is not None and address.directory is not None
        error = asyncio.run(explained(error, CURRENT_LOGIN.get(), is_paused_likely=is_local))
    return f"{error}{_where_asked(error)}", error


def _no_controller() -> NoControllerError | None:
    """The error of the command's brokers if they reach no active controller.

    A broker may wait for the controller in vain and answer before the client's time-out ends, or after it.
    """
    from ..cluster.client.quorum_client import no_controller

    address = chosen_address()
    if address is None or address.at_controllers:
        return None
    return asyncio.run(no_controller(address.bootstrap))


async def _why_no_controller(error: NoControllerError) -> str:
    """Which controllers do not answer, and what to do."""
    from ..cluster.client.access.bootstrap import bootstrap_text
    from ..cluster.client.cluster_client import ClusterClient
    from ..cluster.client.quorum_client import QuorumClient

    address = chosen_address()
    async with ClusterClient(bootstrap_text(error.silent), timeout_s=_EXPLAINED_IN_S) as client:
        controllers = {} if address is None else address.controllers
        found = await QuorumClient(client, controllers=controllers).no_leader()
    silent = f"of the controllers {'; '.join(map(str, found.silent))}; " if found.silent else ""
    local = None if address is None else address.local_options
    return f"{silent}a majority of the controllers must run, and raftwerk doctor{local or ''} shows what to do"


def _where_asked(error: Exception) -> str:
    """Where the address or the login came from, if that may be why; empty otherwise."""
    from ..cluster.client.client_errors import (
        DamagedBatchError,
        NotLoggedInError,
        OtherClusterError,
        RefusedError,
        UnreachableError,
    )
    from ..wire.errors import ErrorCode

    address = chosen_address()
    if isinstance(error, DamagedBatchError) and address is not None and address.directory is not None:
        log = shlex.quote(f"{address.directory}/node-{error.leader}/{error.partition}")
        stop, start = (f"raftwerk {verb} {error.leader}{address.local_options or ''}" for verb in ("stop", "start"))
        return f": {stop}; raftwerk log repair {log} --execute; {start}"
    if isinstance(error, NotLoggedInError):
        file = chosen_client_properties()
        if file is not None and address is not None and address.at_controllers:
            own = f"a file of their own, and name it with --command-config: it is {file} now"
            return f"; controllers were asked, and may take another login than brokers: {error.way_out} in {own}"
        if file is not None and login_is_of_environment():
            origin = f"the login is from {COMMAND_CONFIG_VARIABLE}={file}"
            return f"; {origin}: unset that if it belongs to another cluster, else {error.way_out} there"
        where = "in a file of client properties, and name it with --command-config" if file is None else f"in {file}"
        return f"; {error.way_out} {where}"
    if address is None or isinstance(error, OtherClusterError):
        return ""
    if isinstance(error, UnreachableError):
        advice = f"the address is from {address.origin}" if error.is_explained else address.advice
        return f"; {_brokers_of_controllers(error)}{advice}"
    elsewhere = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND)
    if isinstance(error, RefusedError) and error.code in elsewhere and not address.is_explicit:
        asked = address.origin if address.directory is not None else f"{address.bootstrap}, from {address.origin}"
        return f" (asked {asked})"
    return ""


def _brokers_of_controllers(error: UnreachableError) -> str:
    """Where the brokers of the local cluster are, if its controllers were asked instead; empty otherwise."""
    from ..cluster.command_line.cluster_address import default_directory
    from ..cluster.local.layout import load_plan

    try:
        plan = load_plan(default_directory())
    except (OSError, ValueError):
        return ""
    controllers = {node.controller_port for node in plan.nodes}
    is_there = all(host in ("127.0.0.1", "localhost", "::1") and port in controllers for host, port in error.reasons)
    return f"the brokers of this cluster are at {plan.bootstrap}; " if is_there else ""


def as_bytes(text: str) -> bytes:
    """An argument of the command line as the bytes that were typed, which need not be UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def each_once(_ctx: click.Context, _param: click.Parameter, values: tuple[T, ...]) -> tuple[T, ...]:
    """The callback of an argument that may be repeated: what was given twice counts once."""
    return tuple(dict.fromkeys(values))


def tell_none(sentence: str) -> None:
    """Say that a list is empty, on standard error, so that a pipe gets the rows and nothing else; exit code 0."""
    click.echo(sentence, err=True)


def end_incomplete(missing: Iterable[str]) -> None:
    """Say what a list lacks, on standard error, and end with exit code 1; nothing if it lacks nothing."""
    told = "; ".join(missing)
    if told:
        from ..cluster.client.client_errors import WHO_IS_DOWN

        raise click.ClickException(f"incomplete: {told}; {WHO_IS_DOWN}")


def print_json(value: object) -> None:
    """Print one object in one line."""
    click.echo(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def parse_pairs(entries: tuple[str, ...], option: str) -> dict[str, str]:
    """The `key=value` options as a dict; exit code 2 for one that is not of this form."""
    result = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{entry!r} is not key=value", param_hint=option)
        result[key] = value
    return result


def milliseconds(text: str, option: str) -> int:
    """The time, in milliseconds since 1970, of `10m` (ago), `2026-01-31T12:00` (UTC) or a number of milliseconds.

    Exit code 2 for anything else.
    """
    found = _milliseconds(text)
    if found is None:
        example = "is not a time like 10m (ago), 2026-01-31T12:00 (UTC) or 1769860800000"
        raise click.BadParameter(f"{text!r} {example}", param_hint=option)
    if not 0 <= found <= _LAST_MS:
        when = "before 1970" if found < 0 else "later than Kafka's timestamps go"
        raise click.BadParameter(f"{text!r} is {when}", param_hint=option)
    return found


def duration_ms(text: str, option: str) -> int:
    """The milliseconds of a duration such as `30s`, `10m`, `12h` or `7d`. Exit code 2 for anything else."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a duration like 30s, 10m, 12h or 7d", param_hint=option)
    return int(found[1]) * _UNITS_S[found[2]] * 1000


def _milliseconds(text: str) -> int | None:
    if text.isdecimal():
        found = whole_number(text)
        return _LAST_MS + 1 if found is None else found
    ago = re.fullmatch(r"(\d+)([smhd])", text)
    if ago:
        count = whole_number(ago[1])
        return -1 if count is None else int(time.time() * 1000) - count * _UNITS_S[ago[2]] * 1000
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return ((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def whole_number(text: str) -> int | None:
    """The number that decimal digits make; None for another text, and for more digits than a number of Kafka has."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS_MAX else None
