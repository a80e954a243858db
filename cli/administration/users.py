"""`raftwerk users`: users that log in by SASL/SCRAM, and their passwords (KIP-554)."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import click

from ...cluster.command_line.text_table import visible
from ...runtime.os_errors import os_words
from ...security.sasl.scram_credential import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISM_NUMBERS, SCRAM_SHA_512
from ..options import Group, WrongConfiguration, bootstrap_option, json_option, print_json, run_client, tell_none

F = TypeVar("F", bound=Callable[..., Any])
_STANDARD_INPUT = "-"


@click.group(cls=Group)
def users() -> None:
    """Add, list and remove users who log in by SASL/SCRAM, and change their passwords.

    They are kept in the metadata log, and every node knows a change at once. What a user may do is said by raftwerk
    acls.

    \b
    Examples:
      raftwerk users add alice                          asks for the password
      raftwerk users add alice --password-file alice.txt
      raftwerk users list
      raftwerk users password alice
      raftwerk users remove alice
    """


def _mechanism_option(told: str) -> Callable[[F], F]:
    return click.option(
        "--mechanism",
        "mechanisms",
        multiple=True,
        type=click.Choice(list(MECHANISM_NUMBERS), case_sensitive=False),
        metavar="NAME",
        help=f"SCRAM-SHA-512 or SCRAM-SHA-256; repeatable. Default: {told}.",
    )


def _password_options(function: F) -> F:
    for option in (
        click.option("--password", metavar="TEXT", help="The password, which the command line shows to others."),
        click.option(
            "--password-file",
            metavar="FILE",
            type=click.Path(dir_okay=False, allow_dash=True),
            help="The first line of this file is the password; '-' is standard input.",
        ),
        click.option(
            "--iterations",
            type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
            help=f"How often the password is hashed. Default: as before, or {ITERATIONS_MIN}.",
        ),
    ):
        function = option(function)
    return function


@users.command()
@click.argument("name")
@_mechanism_option(SCRAM_SHA_512)
@_password_options
@bootstrap_option
def add(name: str, mechanisms: tuple[str, ...], iterations: int | None, bootstrap: str, **given: str | None) -> None:
    """Add the user NAME. The password is asked for; without a terminal it is the first line of standard input.

    \b
    Examples:
      raftwerk users add alice
      raftwerk users add alice --mechanism SCRAM-SHA-256 --mechanism SCRAM-SHA-512 --iterations 8192
      openssl rand -hex 16 | tee alice.txt | raftwerk users add alice
    """
    prefix, _, user = name.partition(":")
    if prefix == "User" and user:
        raise click.UsageError(f"User: belongs to principals, as ACLs name them: raftwerk users add {user}")
    wanted = dict.fromkeys(mechanisms or [SCRAM_SHA_512], iterations or ITERATIONS_MIN)
    password = _password(name, **given)

    async def run() -> list[str]:
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            admin = AdminClient(client)
            there = [one for one in (await admin.list_scram_users()).get(name, {}) if one in wanted]
            if not there:
                await admin.set_scram_password(name, password, wanted, secrets.token_bytes)
            return there

    there = run_client(run())
    if there:
        raise click.ClickException(
            f"{name} has a password for {' and '.join(there)} already: raftwerk users password {name} changes it"
        )
    click.echo(f"Added {name} for {' and '.join(wanted)}.")


@users.command()
@click.argument("name")
@_mechanism_option("those that the user has")
@_password_options
@bootstrap_option
def password(
    name: str, mechanisms: tuple[str, ...], iterations: int | None, bootstrap: str, **given: str | None
) -> None:
    """Change the password of the user NAME. Connections that are open stay open.

    \b
    Examples:
      raftwerk users password alice
      raftwerk users password alice --password-file alice.txt
    """
    chosen = _password(name, **given)

    async def run() -> list[str]:
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            admin = AdminClient(client)
            found = await admin.list_scram_users()
            wanted = _of(name, found, mechanisms)
            counts = {one: iterations or found[name][one] for one in wanted}
            await admin.set_scram_password(name, chosen, counts, secrets.token_bytes)
            return wanted

    click.echo(f"Changed the password of {name} for {' and '.join(run_client(run()))}.")


@users.command("list")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@bootstrap_option
@json_option
def list_users(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """List the users, all or those of these names, with the mechanisms for which they have a password.

    \b
    Examples:
      raftwerk users list
      raftwerk users list alice --json
    """

    async def run() -> dict[str, dict[str, int]]:
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            found = await AdminClient(client).list_scram_users()
        return {name: _with_password(name, found) for name in names or sorted(found)}

    found = run_client(run())
    for name, mechanisms in found.items():
        for mechanism, iterations in mechanisms.items():
            if as_json:
                print_json({"user": name, "mechanism": mechanism, "iterations": iterations})
            else:
                click.echo(visible(f"{name:<20}  {mechanism:<13}  {iterations} iterations"))
    if not found:
        tell_none("There are no users with a password.")


@users.command()
@click.argument("name")
@_mechanism_option("all that the user has")
@click.option("--force", is_flag=True, help="Remove it even if it is the password by which this command logs in.")
@bootstrap_option
def remove(name: str, mechanisms: tuple[str, ...], force: bool, bootstrap: str) -> None:
    """Remove the user NAME, who cannot log in any more. What ACLs allow to NAME stays.

    The user by whom the command itself logs in is removed only with --force.

    \b
    Example:
      raftwerk users remove alice
    """

    async def run() -> list[str]:
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            admin = AdminClient(client)
            wanted = _of(name, await admin.list_scram_users(), mechanisms)
            if not force:
                _check_not_oneself(name, wanted)
            await admin.remove_scram_password(name, wanted)
            return wanted

    click.echo(f"Removed the password of {name} for {' and '.join(run_client(run()))}.")


def _check_not_oneself(name: str, mechanisms: Collection[str]) -> None:
    """Raises `ClientError` for the user and a mechanism by which this command logs in."""
    from ...cluster.client.access.current_login import own_scram_user
    from ...cluster.client.client_errors import ClientError

    mechanism, user = own_scram_user() or ("", "")
    if user == name and mechanism in mechanisms:
        raise ClientError(
            f"this command logs in as {name} by {mechanism}, and could not log in again: log in as another user "
            "(--command-config), or --force removes it all the same"
        )


def _with_password(name: str, found: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """The mechanisms of a user. Raises `ClientError` for one who has no password."""
    from ...cluster.client.client_errors import ClientError

    if name not in found:
        raise ClientError(f"there is no user {name} with a SCRAM password: raftwerk users list shows them")
    return dict(found[name])


def _of(name: str, found: Mapping[str, Mapping[str, int]], mechanisms: tuple[str, ...]) -> list[str]:
    """The mechanisms that are meant. Raises `ClientError` for one for which the user has no password."""
    from ...cluster.client.client_errors import ClientError

    has = _with_password(name, found)
    missing = [one for one in mechanisms if one not in has]
    if missing:
        raise ClientError(f"{name} has no password for {' and '.join(missing)}, only for {' and '.join(has)}")
    return list(dict.fromkeys(mechanisms)) or list(has)


def _password(name: str, password: str | None, password_file: str | None) -> str:
    """The password, from where the options say, or asked for."""
    if password is not None and password_file is not None:
        raise click.UsageError("--password and --password-file both give the password: leave one of them out")
    if password is not None:
        told = "the command line and the shell's history show the password to others; --password-file does not"
        click.echo(f"Warning: {told}", err=True)
        found = password
    elif password_file not in (None, _STANDARD_INPUT):
        found = _first_line_of(str(password_file))
    elif password_file is None and sys.stdin.isatty():
        found = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt="Once more", err=True)
    else:
        found = sys.stdin.readline().rstrip("\r\n")
    if not found:
        raise click.UsageError("the password is empty")
    try:
        str(found).encode()
    except UnicodeEncodeError:
        raise WrongConfiguration("the password is not UTF-8 text, and has to be") from None  # it is not shown
    return str(found)


def _first_line_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().rstrip("\r\n")
    except OSError as error:
        raise WrongConfiguration(f"cannot read {path}: {os_words(error)}") from None
    except UnicodeDecodeError:
        raise WrongConfiguration(f"{path} is not a text file") from None
