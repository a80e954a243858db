"""`raftwerk acls`: lists access control lists, and says who may do what."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

import click

from ...cluster.command_line.text_table import folded, visible
from ...security.authorizer.acl_binding import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from ...security.authorizer.acl_words import AclWordError, operations_of, principal_of, row_of
from ..options import Group, bootstrap_option, counted, json_option, print_json, run_client, tell_none

_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}


@click.group(cls=Group)
def acls() -> None:
    """List access control lists, and say who may do what.

    They count where the nodes have authorizer.class.name in their settings. A denial counts more than any allowance.

    \b
    Examples:
      raftwerk acls allow alice produce --topic flights
      raftwerk acls allow alice consume --topic flights --group reports
      raftwerk acls allow bob read describe --topic team- --prefixed
      raftwerk acls deny mallory all --topic '*' --host 192.0.2.7
      raftwerk acls list --topic flights
      raftwerk acls remove alice --topic flights
    """


def _resource_options(function: click.decorators.FC) -> click.decorators.FC:
    for option in (
        click.option("--prefixed", is_flag=True, help="The names are those that begin so."),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
        click.option(
            "--user-principal", multiple=True, metavar="NAME", help="A user whose tokens are meant; repeatable."
        ),
        click.option("--delegation-token", multiple=True, metavar="ID", help="A delegation token; repeatable."),
        click.option("--transactional-id", multiple=True, metavar="ID", help="A transactional id; repeatable."),
        click.option("-g", "--group", multiple=True, metavar="ID", help="A consumer group; repeatable."),
        click.option("-t", "--topic", multiple=True, metavar="NAME", help="A topic, or '*' for all; repeatable."),
    ):
        function = option(function)
    return function


def _resources(given: dict[str, Any]) -> list[tuple[ResourceType, str]]:
    """The types and names of resources that the options name. Those options are removed from `given`."""
    named = [
        (kind, principal_of(name) if kind is ResourceType.USER and name != WILDCARD else name)
        for key, kind in _KINDS.items()
        for name in given.pop(key)
    ]
    return named + ([(ResourceType.CLUSTER, CLUSTER_NAME)] if given.pop("cluster") else [])


def _operations(names: Sequence[str], kind: ResourceType) -> list[AclOperation]:
    """The operations that the names stand for on resources of that type. Raises `UsageError`."""
    try:
        return operations_of(names, kind)
    except AclWordError as error:
        raise click.UsageError(str(error)) from None


def _print(work: Coroutine[Any, Any, list[AclBinding]], *, as_json: bool) -> int:
    rows = [row_of(one) for one in run_client(work)]
    for row in rows:
        if as_json:
            print_json(row)
            continue
        what = f"{row['resource_type']} {row['resource_name']}"
        if row["pattern"] == "prefix":
            what += " and all that begin so"
        elif row["resource_name"] == WILDCARD:
            what = f"every {row['resource_type']}"
        elif row["resource_name"] == CLUSTER_NAME:
            what = "cluster"
        host = "" if row["host"] == WILDCARD else f"  from {row['host']}"
        line = f"{row['permission']:<5}  {row['principal']:<20}  {row['operation']:<16}  {what}{host}"
        click.echo(folded(visible(line), 7))
    return len(rows)


def _change(permission: AclPermissionType, principal: str, operations: Sequence[str], **given: Any) -> None:
    bootstrap, host, prefixed, as_json = (given.pop(key) for key in ("bootstrap", "host", "prefixed", "as_json"))
    resources = _resources(given)
    if not resources:
        raise click.UsageError(
            "say on what: --topic NAME, --group ID, --transactional-id ID, --user-principal NAME, "
            "--delegation-token ID or --cluster"
        )
    for kind, name in resources:
        if kind is ResourceType.TOPIC and WILDCARD in name and name != WILDCARD:
            beginning = name.partition(WILDCARD)[0] or "orders"
            raise click.UsageError(
                f"no topic has {WILDCARD} in its name: --topic {beginning} --prefixed is for all that begin so, "
                f"--topic '{WILDCARD}' for all topics"
            )
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    bindings = [
        AclBinding(kind, name, pattern, principal_of(principal), host, operation, permission)
        for kind, name in resources
        for operation in _operations(operations, kind)
    ]
    if not bindings:
        raise click.UsageError(f"{' and '.join(operations)} means nothing there; name an operation, such as read")
    if prefixed and any(kind is ResourceType.CLUSTER for kind, _ in resources):
        raise click.UsageError("the cluster has no prefix; take --prefixed or --cluster away")

    async def run() -> list[AclBinding]:
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            await AdminClient(client).create_acls(bindings)
        return bindings

    _print(run(), as_json=as_json)
    is_of_consumers = permission is AclPermissionType.ALLOW and "consume" in operations
    if is_of_consumers and not any(kind is ResourceType.GROUP for kind, _ in resources):
        click.echo("Note: who consumes in a group needs the same for the group: --group ID.", err=True)


def _change_options(function: click.decorators.FC) -> click.decorators.FC:
    for option in (
        json_option,
        bootstrap_option,
        click.option("--host", default=WILDCARD, metavar="ADDRESS", help="Only from this IP address."),
        _resource_options,
        click.argument("operations", nargs=-1, required=True, metavar="OPERATION..."),
        click.argument("principal"),
    ):
        function = option(function)
    return function


@acls.command()
@_change_options
def allow(**given: Any) -> None:
    """Allow PRINCIPAL to do something. `alice` is short for User:alice, `'*'` is everybody.

    Operations are read, write, create, delete, alter, describe, describe-configs, alter-configs, cluster-action,
    idempotent-write, two-phase-commit and all; `produce` and `consume` stand for what producers and consumers do.

    \b
    Examples:
      raftwerk acls allow alice produce --topic flights
      raftwerk acls allow alice consume --topic flights --group reports
      raftwerk acls allow User:broker cluster-action --cluster
    """
    _change(AclPermissionType.ALLOW, **given)


@acls.command()
@_change_options
def deny(**given: Any) -> None:
    """Deny PRINCIPAL something, whatever else allows it.

    \b
    Example:
      raftwerk acls deny mallory all --topic '*'
    """
    _change(AclPermissionType.DENY, **given)


@acls.command("list")
@click.option("--principal", metavar="NAME", help="Only of this principal.")
@_resource_options
@bootstrap_option
@json_option
def list_acls(principal: str | None, prefixed: bool, bootstrap: str, as_json: bool, **given: Any) -> None:
    """List the entries; with --topic and the like, all that count for it, those of prefixes and of '*' too.

    \b
    Examples:
      raftwerk acls list
      raftwerk acls list --topic flights --principal alice
    """
    pattern = PatternType.PREFIXED if prefixed else PatternType.MATCH
    resources = _resources(given)
    filters = _filters(resources, pattern, principal)

    async def run() -> list[AclBinding]:
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            return sorted({one for wanted in filters for one in await AdminClient(client).list_acls(wanted)})

    if not _print(run(), as_json=as_json):
        tell_none("No ACL matches." if principal or resources else "There are no ACLs.")


@acls.command()
@click.argument("principal", required=False)
@click.argument("operations", nargs=-1, metavar="[OPERATION...]")
@_resource_options
@click.option("--all", "everything", is_flag=True, help="All entries of the cluster.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@bootstrap_option
@json_option
def remove(
    principal: str | None,
    operations: tuple[str, ...],
    everything: bool,
    dry_run: bool,
    prefixed: bool,
    bootstrap: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Remove the entries of PRINCIPAL, all or only those of some operations and resources, and show them.

    A name of a resource is that of the entry: an entry for a prefix is removed with --prefixed. Removing a denial may
    allow something.

    \b
    Examples:
      raftwerk acls remove alice --dry-run
      raftwerk acls remove alice write --topic flights
      raftwerk acls remove --topic flights
    """
    resources = _resources(given)
    if not (principal or resources or everything):
        raise click.UsageError("say whose or on what: PRINCIPAL, --topic NAME, ..., or --all for all entries")
    if everything and (principal or resources):
        raise click.UsageError("--all removes all entries; take it away, or the rest")
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL if resources else PatternType.ANY
    filters = _filters(resources, pattern, principal, operations)

    async def run() -> list[AclBinding]:
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            if dry_run:
                return sorted({one for wanted in filters for one in await AdminClient(client).list_acls(wanted)})
            return await AdminClient(client).delete_acls(filters)

    count = _print(run(), as_json=as_json)
    if not count and not (everything or dry_run):
        raise click.ClickException("there are no such ACLs; raftwerk acls list shows them")
    if not count:
        tell_none("There are no ACLs." if everything else "No ACL matches.")
    elif not as_json:
        click.echo(f"{counted(count, 'ACL')} would be removed." if dry_run else f"Removed {counted(count, 'ACL')}.")


def _filters(
    resources: Sequence[tuple[ResourceType, str]],
    pattern: PatternType,
    principal: str | None,
    operations: Sequence[str] = (),
) -> list[AclBindingFilter]:
    whose = None if principal is None else principal_of(principal)
    any_resource: list[tuple[ResourceType, str | None]] = [(ResourceType.ANY, None)]
    return [
        AclBindingFilter(kind, name, pattern, whose, operation=operation)
        for kind, name in resources or any_resource
        for operation in (_operations(operations, kind) if operations else [AclOperation.ANY])
    ]
