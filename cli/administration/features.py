"""`raftwerk features`: shows and changes the levels of the cluster's features (KIP-584)."""

from __future__ import annotations

import click

from ...cluster.command_line.text_table import folded
from ..options import Group, bootstrap_option, json_option, parse_pairs, print_json, run_client, whole_number


@click.group(cls=Group)
def features() -> None:
    """Show and change the levels of the cluster's features.

    \b
    Examples:
      raftwerk features list
      raftwerk features upgrade --dry-run
      raftwerk features set eligible.leader.replicas.version=1
      raftwerk features set eligible.leader.replicas.version=0 --downgrade --dry-run
    """


@features.command("list")
@bootstrap_option
@json_option
def list_features(bootstrap: str, as_json: bool) -> None:
    """List the features with their supported levels and the finalized level.

    \b
    Example:
      raftwerk features list
    """

    async def run() -> list[dict[str, object]]:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.feature_client import features

        async with ClusterClient(bootstrap) as client:
            return [
                {
                    "feature": one.name,
                    "lowest": one.lowest,
                    "highest": one.highest,
                    "level": one.level,
                    "release": one.release,
                }
                for one in await features(client)
            ]

    for row in run_client(run()):
        if as_json:
            print_json(row)
        else:
            level = "not set" if row["level"] is None else f"level {row['level']}"
            known = "" if row["release"] is None else f" ({row['release']})"
            click.echo(f"{row['feature']}  {level}{known}  (supported: {row['lowest']} to {row['highest']})")


@features.command("upgrade")
@click.argument("names", nargs=-1, metavar="[FEATURE...]")
@click.option("--dry-run", is_flag=True, help="Only check whether it is possible.")
@bootstrap_option
@json_option
def upgrade_features(names: tuple[str, ...], dry_run: bool, bootstrap: str, as_json: bool) -> None:
    """Raise features to the highest level that the software supports: all of them, or none.

    Do this when every node runs the new software. As long as a node does not, it is refused, and the message names the
    node. Without names, all features are raised but kraft.version, which changes how controllers are added and removed.

    \b
    Example:
      raftwerk features upgrade --dry-run
    """

    async def run() -> tuple[list[dict[str, object]], str]:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.feature_client import upgrade_features
        from ...cluster.client.quorum_client import MAKE_DYNAMIC

        async with ClusterClient(bootstrap) as client:
            behind, left_out = await upgrade_features(client, names, dry_run=dry_run)
        rows = [{"feature": one.name, "level_before": one.level or 0, "level": one.highest} for one in behind]
        note = (
            ""
            if left_out is None
            else f"{left_out.name} is left out and stays at {left_out.level or 0}: {MAKE_DYNAMIC}."
        )
        return rows, note

    rows, left_out = run_client(run())
    for row in rows:
        if as_json:
            print_json(row)
        else:
            click.echo(f"{row['feature']}  level {row['level_before']} -> {row['level']}")
    if as_json:
        return
    if rows:
        click.echo("It is possible." if dry_run else "Done.")
    else:
        click.echo(f"All {'other ' if left_out else ''}features are at their highest levels.")
    if left_out:
        click.echo(folded(left_out))


@features.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="FEATURE=LEVEL...")
@click.option("--downgrade", is_flag=True, help="Allow a lower level if no metadata is lost.")
@click.option("--unsafe", is_flag=True, help="Allow a lower level even if metadata is lost.")
@click.option("--dry-run", is_flag=True, help="Only check whether it is possible.")
@bootstrap_option
def set_features(pairs: tuple[str, ...], downgrade: bool, unsafe: bool, dry_run: bool, bootstrap: str) -> None:
    """Set the levels of features: all of them, or none.

    \b
    Example:
      raftwerk features set eligible.leader.replicas.version=0 --downgrade --dry-run
    """
    given = parse_pairs(pairs, "FEATURE=LEVEL")
    levels = {name: level for name, text in given.items() if (level := whole_number(text)) is not None}
    wrong = [f"{name}={text}" for name, text in given.items() if name not in levels]
    if wrong:
        raise click.UsageError(f"{wrong[0]}: a level is a number, which raftwerk features list shows beside its name")

    async def run() -> None:
        from ...cluster.client.client_errors import ClientError
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.feature_client import features as features_of
        from ...cluster.client.feature_client import set_features

        async with ClusterClient(bootstrap) as client:
            try:
                await set_features(client, levels, downgrade=downgrade, unsafe=unsafe, dry_run=dry_run)
            except ClientError as error:
                now = {one.name: one.level or 0 for one in await features_of(client)}
                if downgrade or unsafe or not any(level < now.get(name, 0) for name, level in levels.items()):
                    raise
                raise ClientError(f"{error}; a lower level needs --downgrade") from None

    run_client(run())
    click.echo("It is possible." if dry_run else "Done.")
