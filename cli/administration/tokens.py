"""`raftwerk tokens`: delegation tokens, by which programs log in as somebody (KIP-48)."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import click

from ...cluster.command_line.text_table import visible
from ...security.principals import USER, KafkaPrincipal, parse_principal
from ..options import Group, bootstrap_option, duration_ms, json_option, print_json, run_client, tell_none

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...cluster.client.access.token_client import TokenClient, TokenRow

T = TypeVar("T")

_LONGEST = -1
_YEAR_MAX_MS = 253_402_300_799_000


@click.group(cls=Group)
def tokens() -> None:
    """Make, list, renew and end delegation tokens: who has one logs in as its owner, until it expires.

    A program logs in by SCRAM, with the token's id as username, its HMAC as password, and tokenauth="true". The HMAC
    is the secret of the token.

    \b
    Examples:
      raftwerk tokens create --renewer bob --max-lifetime 2d
      raftwerk tokens list
      raftwerk tokens renew ID
      raftwerk tokens expire ID
    """


@tokens.command()
@click.option("--owner", metavar="NAME", help="For whom the token is. Default: for you.")
@click.option("--renewer", "renewers", multiple=True, metavar="NAME", help="Who may renew and end it too; repeatable.")
@click.option("--max-lifetime", metavar="TIME", help="It cannot be renewed beyond this time, such as 12h or 7d.")
@bootstrap_option
@json_option
def create(
    owner: str | None, renewers: tuple[str, ...], max_lifetime: str | None, bootstrap: str, as_json: bool
) -> None:
    """Make a token, and print its id and its secret.

    \b
    Examples:
      raftwerk tokens create
      raftwerk tokens create --owner alice --renewer bob --json
    """
    whose = None if owner is None else _principal(owner, "--owner")
    others = [_principal(one, "--renewer") for one in renewers]
    lifetime_ms = _LONGEST if max_lifetime is None else duration_ms(max_lifetime, "--max-lifetime")

    async def run() -> TokenRow:
        from ...cluster.client.access.token_client import TokenClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            return await TokenClient(client).create(whose, others, lifetime_ms)

    _print(run_client(run()), as_json=as_json, secret=True)


@tokens.command("list")
@click.option("--owner", "owners", multiple=True, metavar="NAME", help="Only tokens of this owner; repeatable.")
@click.option("--secrets", is_flag=True, help="Show the HMACs, too.")
@bootstrap_option
@json_option
def list_tokens(owners: tuple[str, ...], secrets: bool, bootstrap: str, as_json: bool) -> None:
    """List the tokens that you may see: your own, those that you may renew, and what ACLs allow.

    \b
    Examples:
      raftwerk tokens list
      raftwerk tokens list --owner alice --secrets
    """
    wanted = [_principal(one, "--owner") for one in owners] or None

    async def run() -> list[TokenRow]:
        from ...cluster.client.access.token_client import TokenClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            return await TokenClient(client).list_tokens(wanted)

    found = sorted(run_client(run()), key=lambda one: (one.owner, one.issued_ms, one.token_id))
    for number, token in enumerate(found):
        if number and not as_json:
            click.echo()
        _print(token, as_json=as_json, secret=secrets)
    if not found:
        tell_none("There are no tokens that you may see.")


@tokens.command()
@click.argument("token_id", metavar="ID")
@click.option(
    "--period",
    metavar="TIME",
    help="For how long, such as 12h; at most and by default delegation.token.expiry.time.ms.",
)
@bootstrap_option
def renew(token_id: str, period: str | None, bootstrap: str) -> None:
    """Renew the token ID, as its owner or one of its renewers.

    \b
    Examples:
      raftwerk tokens renew 4LBMQmnKRBuLEpX4h7QK-w
      raftwerk tokens renew 4LBMQmnKRBuLEpX4h7QK-w --period 12h
    """
    period_ms = _LONGEST if period is None else duration_ms(period, "--period")
    expires_ms = _change(bootstrap, token_id, lambda client, token: client.renew(token, period_ms))
    click.echo(f"Token {token_id} expires at {_time(expires_ms)}.")


@tokens.command()
@click.argument("token_id", metavar="ID")
@click.option("--after", metavar="TIME", help="End it after this time, such as 10m. Default: at once.")
@bootstrap_option
def expire(token_id: str, after: str | None, bootstrap: str) -> None:
    """End the token ID, as its owner or one of its renewers. Connections by it end when they have to log in again.

    \b
    Examples:
      raftwerk tokens expire 4LBMQmnKRBuLEpX4h7QK-w
      raftwerk tokens expire 4LBMQmnKRBuLEpX4h7QK-w --after 10m
    """
    if after is None:
        _change(bootstrap, token_id, lambda client, token: client.end(token))
        click.echo(f"Ended token {token_id}.")
        return
    period_ms = duration_ms(after, "--after")
    expires_ms = _change(bootstrap, token_id, lambda client, token: client.expire(token, period_ms))
    click.echo(f"Token {token_id} expires at {_time(expires_ms)}.")


def _change(bootstrap: str, token_id: str, change: Callable[[TokenClient, TokenRow], Awaitable[T]]) -> T:
    """Change the token of this id, and return what `change` does."""

    async def run() -> T:
        from ...cluster.client.access.token_client import TokenClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            asked = TokenClient(client)
            return await change(asked, await _found(asked, token_id))

    return run_client(run())


async def _found(asked: TokenClient, token_id: str) -> TokenRow:
    """The token of this id. Raises `ClientError` when there is none that the client may see."""
    from ...cluster.client.client_errors import ClientError

    found = next((one for one in await asked.list_tokens() if one.token_id == token_id), None)
    if found is None:
        raise ClientError(f"there is no token {token_id} that you may see: raftwerk tokens list shows them")
    return found


def _principal(text: str, option: str) -> KafkaPrincipal:
    """The principal of `alice` or `User:alice`. Exit code 2 for what is neither."""
    if ":" not in text and text:
        return KafkaPrincipal(USER, text)
    try:
        return parse_principal(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def _print(token: TokenRow, *, as_json: bool, secret: bool) -> None:
    hmac = b64encode(token.hmac).decode()
    if as_json:
        row = {
            "id": token.token_id,
            **({"hmac": hmac} if secret else {}),
            "owner": token.owner,
            "requester": token.requester,
            "renewers": list(token.renewers),
            "issued_ms": token.issued_ms,
            "expires_ms": token.expires_ms,
            "max_ms": token.max_ms,
        }
        print_json(row)
        return
    lines = {
        "id": token.token_id,
        "hmac": hmac if secret else "",
        "owner": token.owner,
        "made by": token.requester if token.requester != token.owner else "",
        "renewers": ", ".join(token.renewers),
        "expires": f"{_time(token.expires_ms)}, if it is renewed {_time(token.max_ms)} at the latest",
    }
    for name, text in lines.items():
        if text:
            click.echo(visible(f"{name:<8}  {text}"))


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(min(timestamp_ms, _YEAR_MAX_MS) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
