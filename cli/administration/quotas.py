"""`raftwerk quotas`: how much clients may produce and fetch, and what else is limited (KIP-546)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from ...cluster.command_line.text_table import folded, visible
from ..options import Group, bootstrap_option, json_option, parse_pairs, print_json, run_client, tell_none, way_out_told

F = TypeVar("F", bound=Callable[..., Any])
_KINDS = {"user": "user", "client_id": "client-id", "ip": "ip"}
_DEFAULT = "--default-{}"


def _entity_options(command: F) -> F:
    for name, kind in reversed(_KINDS.items()):
        shown = {"user": "user", "client-id": "client id", "ip": "address"}[kind]
        command = click.option(
            _DEFAULT.format(kind), f"default_{name}", is_flag=True, help=f"Each {shown} without quotas of its own."
        )(command)
        command = click.option(f"--{kind}", name, help=f"This {shown}.")(command)
    return command


def _entity(given: Mapping[str, Any]) -> dict[str, str | None]:
    """The names by type. Raises `UsageError` for a name and the default of the same type."""
    entity: dict[str, str | None] = {}
    for name, kind in _KINDS.items():
        if given[name] is not None and given[f"default_{name}"]:
            raise click.UsageError(f"--{kind} and {_DEFAULT.format(kind)} exclude each other")
        if given[name] is not None or given[f"default_{name}"]:
            entity[kind] = given[name]
    return entity


def _named_entity(given: Mapping[str, Any]) -> dict[str, str | None]:
    entity = _entity(given)
    if not entity:
        raise click.UsageError("say whose quotas: --user, --client-id, both, --ip, or a --default-... of them")
    return entity


def _way_out(entity: Mapping[str, str | None], names: Iterable[str]) -> str | None:
    """What to do about quotas that such an entity does not have; None if it has them all."""
    from ...cluster.settings.setting_names import way_out_of_quotas

    if "ip" in entity and len(entity) > 1:
        return "give --ip alone, or leave it out"
    return way_out_of_quotas(entity, names)


def _value_text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.15g}"


def _shown(entity: Mapping[str, str | None]) -> str:
    return ", ".join(f"default {kind}" if name is None else f"{kind} {visible(name)}" for kind, name in entity.items())


@click.group(cls=Group)
def quotas() -> None:
    """Limit what clients may use: bytes a second, time, changes of topics, new connections.

    \b
    producer_byte_rate        bytes a second that are produced, on each broker
    consumer_byte_rate        bytes a second that are fetched, on each broker
    request_percentage        percentage of the time of a broker's event loop
    controller_mutation_rate  partitions a second that are created and deleted
    connection_creation_rate  new connections a second of an address, on each broker

    \b
    Examples:
      raftwerk quotas set --user alice producer_byte_rate=1000000
      raftwerk quotas set --default-client-id request_percentage=50
      raftwerk quotas list
      raftwerk quotas remove --user alice
    """


@quotas.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="QUOTA=VALUE...")
@_entity_options
@bootstrap_option
def set_quotas(pairs: tuple[str, ...], bootstrap: str, **given: Any) -> None:
    """Set quotas of a user, a client id, both together, or an address.

    \b
    Example:
      raftwerk quotas set --user alice --client-id loader producer_byte_rate=1000000 consumer_byte_rate=2000000
    """
    entity = _named_entity(given)
    values: dict[str, float] = {}
    for key, text in parse_pairs(pairs, "QUOTA=VALUE").items():
        try:
            values[key] = float(text)
        except ValueError:
            values[key] = math.nan
        if not math.isfinite(values[key]):
            raise click.UsageError(
                f"{key}={text}: the value of a quota is a number; raftwerk quotas remove takes it away"
            )

    async def run() -> None:
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            with way_out_told(lambda: _way_out(entity, values)):
                await AdminClient(client).alter_quotas(entity, values)

    run_client(run())
    click.echo(f"Set for {_shown(entity)}.")


@quotas.command("list")
@_entity_options
@bootstrap_option
@json_option
def list_quotas(bootstrap: str, as_json: bool, **given: Any) -> None:
    """List quotas: all, or those of the entities with these names.

    \b
    Example:
      raftwerk quotas list --user alice
    """
    entity = _entity(given)

    async def run() -> list[dict[str, Any]]:
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            found = await AdminClient(client).describe_quotas(entity)
            return [{"entity": dict(one.entity), "quotas": one.json_quotas} for one in found]

    rows = run_client(run())
    for row in sorted(rows, key=lambda one: _shown(one["entity"])):
        if as_json:
            print_json(row)
        else:
            values = " ".join(f"{key}={_value_text(value)}" for key, value in row["quotas"].items())
            click.echo(folded(f"{_shown(row['entity'])}  {values}", 2))
    if not rows:
        tell_none("There are no quotas.")


@quotas.command("remove")
@click.argument("keys", nargs=-1, metavar="[QUOTA...]")
@_entity_options
@bootstrap_option
def remove_quotas(keys: tuple[str, ...], bootstrap: str, **given: Any) -> None:
    """Remove quotas of an entity: these, or all that it has. None is removed if it lacks one of them.

    \b
    Example:
      raftwerk quotas remove --user alice consumer_byte_rate
    """
    entity = _named_entity(given)

    async def run() -> tuple[list[str], list[str]]:
        """The quotas to be removed, and those of them that the entity does not have."""
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            found = await AdminClient(client).describe_quotas(entity)
            has = next((one.quotas for one in found if dict(one.entity) == entity), {})
            wanted, missing = list(keys or has), [key for key in keys if key not in has]
            if wanted and not missing:
                await AdminClient(client).alter_quotas(entity, dict.fromkeys(wanted))
            return wanted, missing

    wanted, missing = run_client(run())
    if wanted and not missing:
        click.echo(f"Removed {', '.join(wanted)}.")
        return
    way_out = _way_out(entity, missing)
    if way_out is None and len(missing) == len(wanted):
        raise click.ClickException(f"{_shown(entity)} has no such quota; raftwerk quotas list shows them")
    nothing = "" if len(missing) == len(wanted) else ", and nothing was removed"
    told = way_out or "raftwerk quotas list shows them"
    raise click.ClickException(f"{_shown(entity)} has no quota {' and '.join(missing)}{nothing}; {told}")
