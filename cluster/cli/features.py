"""`raftwerk features`: the levels of the cluster's features."""

from __future__ import annotations

import click

from .common import bootstrap_option, json_option, parse_pairs, print_json, run_client


@click.group()
def features() -> None:
    """Show and change the levels of the cluster's features.

    \b
    Examples:
      raftwerk features list
      raftwerk features set eligible.leader.replicas.version=1
      raftwerk features set eligible.leader.replicas.version=0 --downgrade --dry-run
    """


@features.command("list")
@bootstrap_option
@json_option
def list_features(bootstrap: str, as_json: bool) -> None:
    """List the features with the levels that are supported and the one in force."""

    async def run() -> list[dict[str, object]]:
        from ..admin import ClusterClient
        from ..feature_admin import features

        async with ClusterClient(bootstrap) as client:
            return [
                {"feature": one.name, "lowest": one.lowest, "highest": one.highest, "level": one.level}
                for one in await features(client)
            ]

    for row in run_client(run()):
        if as_json:
            print_json(row)
        else:
            level = "not set" if row["level"] is None else f"level {row['level']}"
            click.echo(f"{row['feature']}  {level}  (supported: {row['lowest']} to {row['highest']})")


@features.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="FEATURE=LEVEL...")
@click.option("--downgrade", is_flag=True, help="Go to a lower level if nothing is lost by it.")
@click.option("--unsafe", is_flag=True, help="Go to a lower level whatever is lost by it.")
@click.option("--dry-run", is_flag=True, help="Only say whether it could be done.")
@bootstrap_option
def set_features(pairs: tuple[str, ...], downgrade: bool, unsafe: bool, dry_run: bool, bootstrap: str) -> None:
    """Bring features to levels: all of them, or none."""
    given = parse_pairs(pairs, "FEATURE=LEVEL")
    wrong = [f"{name}={level}" for name, level in given.items() if not level.isdigit()]
    if wrong:
        raise click.UsageError(f"{wrong[0]}: a level is a number")

    async def run() -> None:
        from ..admin import ClusterClient
        from ..feature_admin import set_features

        levels = {name: int(level) for name, level in given.items()}
        async with ClusterClient(bootstrap) as client:
            await set_features(client, levels, downgrade=downgrade, unsafe=unsafe, dry_run=dry_run)

    run_client(run())
    click.echo("It could be done." if dry_run else "Done.")
