"""`raftwerk sim`: clusters of whole nodes in the deterministic simulator, seed by seed."""

from __future__ import annotations

import os
from typing import Any

import click

from ...chaos.sim.changes.changed_functions import NoChangesError
from ...chaos.sim.scenarios import SCENARIOS
from ...chaos.sim.seed_runs import DEFAULT_SEEDS, SeedOptions, run_seeds
from ..options import Command, json_option


@click.command(cls=Command, tables={"Scenarios": lambda: [(one.name, one.what) for one in SCENARIOS.values()]})
@click.option(
    "--seeds",
    type=click.IntRange(1),
    metavar="N",
    help=f"How many seeds, each with the next scenario; default: {DEFAULT_SEEDS}.",
)
@click.option(
    "--seed",
    "first_seed",
    type=click.IntRange(0),
    metavar="S",
    help="Run this seed with every scenario; with --seeds the N seeds from it on.",
)
@click.option(
    "--changed",
    is_flag=False,
    flag_value="HEAD",
    metavar="[COMMIT]",
    help="In a clone: prefer the scenarios that run what has changed since the commit, HEAD if none is named.",
)
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    type=click.Choice(list(SCENARIOS)),
    metavar="NAME",
    help="A scenario from the list below, repeatable; default: all scenarios in turn.",
)
@click.option(
    "--resume",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="S",
    help="Go on at this seed, as the last line of a run says; not with --seed.",
)
@click.option("--minutes", type=click.FloatRange(0, min_open=True), metavar="M", help="Begin no run after so long.")
@json_option
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, help="Processes; default: one per core.")
@click.option(
    "--timeline", type=click.IntRange(0), default=60, show_default=True, metavar="N", help="Events shown of a failure."
)
@click.option("--shrink", is_flag=True, help="Reduce a failure to the faults that it needs.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the run as a page to step and play through; of several runs, the first that fails.",
)
@click.option("--html-from", type=click.FloatRange(0), default=0.0, metavar="S", help="The page begins at this second.")
@click.option("--html-to", type=click.FloatRange(0), metavar="S", help="The page ends at this second.")
@click.option("--keep-going", is_flag=True, help="Continue after a failure.")
@click.option("-v", "--verbose", is_flag=True, help="Print a line for every seed.")
@click.pass_context
def sim(ctx: click.Context, /, **options: Any) -> None:
    """Run clusters of whole nodes in the deterministic simulator. The same seed always gives the same run.

    Time, network, disks and faults are simulated in one process: no cluster, no root and no free ports are needed. A
    seed takes a second or a few of one core.

    \b
    Examples:
      raftwerk sim --seeds 1000
      raftwerk sim --scenario network --seed 7             one run again
      raftwerk sim --seed 7 --seeds 3                      every scenario with the seeds 7, 8 and 9
      raftwerk sim --scenario network --seed 7 --shrink    with as few faults as still fail
      raftwerk sim --changed main --seeds 200              prefer what has changed since the branch main
      raftwerk sim --scenario chase --seed 7 --html replay.html
                                                           watch it: nodes, messages, logs, step by step

    Exit code 0 when every seed held, 1 when one failed, 130 after Ctrl-C, which prints the totals of what has run.
    """
    if options["first_seed"] is not None and options["resume"]:
        raise click.UsageError(
            "--resume goes on with seeds that take the scenarios in turn, and --seed begins: give one"
        )
    if options["first_seed"] is not None and options["changed"] is not None:
        raise click.UsageError("--changed draws a scenario for each seed, and --seed runs all of them: give one")
    if options["html_to"] is not None and options["html_from"] >= options["html_to"]:
        raise click.UsageError("--html-from is not before --html-to")
    if options["html"] is None and (options["html_from"] or options["html_to"] is not None):
        raise click.UsageError("--html-from and --html-to choose what a page shows: give --html, too")
    if options["html"] is not None and not os.path.isdir(os.path.dirname(options["html"]) or "."):
        raise click.UsageError(f"--html: there is no directory {os.path.dirname(options['html'])}")
    try:
        ctx.exit(run_seeds(SeedOptions(**options)))
    except NoChangesError as error:
        raise click.ClickException(str(error)) from error
