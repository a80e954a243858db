"""`python -m raftwerk.chaos.fuzz run` attacks three nodes beside a client; `replay FILE` sends requests again."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from ...cluster.client.client_errors import ClientError
from ...cluster.local.supervisor import LocalNodeError
from .attack_table import ATTACKS
from .run import FuzzOptions, FuzzRun, replay


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 when nothing failed, 1 when something did, 2 when the run itself did not work."""
    options = _parser().parse_args(arguments)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    try:
        return _run(options, say) if options.command == "run" else _replay(options, say)
    except (ClientError, LocalNodeError, OSError, ValueError) as error:
        print(f"the run did not work: {error}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    chosen = tuple(options.attacks.split(",")) if options.attacks else tuple(ATTACKS)
    directory = os.path.abspath(options.directory or time.strftime("fuzz-%Y%m%d-%H%M%S"))
    run = FuzzRun(
        FuzzOptions(
            directory,
            minutes=options.minutes,
            attacks=chosen,
            seed=options.seed,
            alone_s=options.alone_seconds,
            p99_factor=options.p99_factor,
            p99_floor_ms=options.p99_floor_ms,
            rss_limit_mb=options.rss_limit_mb,
            kills=options.kills,
        ),
        say,
    )
    verdict = run.execute()
    with open(os.path.join(directory, "verdict.json"), "w", encoding="utf-8") as file:
        json.dump(verdict.to_json(), file, indent=2)
    print(json.dumps(verdict.to_json()) if options.json else "\n".join(verdict.lines()))
    return 0 if verdict.ok else 1


def _replay(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    with tempfile.TemporaryDirectory(prefix="raftwerk-replay-") as directory:
        return 0 if replay(options.file, directory, say) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m raftwerk.chaos.fuzz", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="attack three new nodes beside a working client")
    run.add_argument("--minutes", type=float, default=60.0, help="of attacks; each of them runs once at least")
    run.add_argument("--attacks", metavar="NAMES", help=f"with commas; default: all of {', '.join(ATTACKS)}")
    run.add_argument("--seed", type=int, default=1, help="the same seed draws the same requests")
    run.add_argument("--alone-seconds", type=float, default=15.0, help="how long the client runs alone at first")
    run.add_argument("--p99-factor", type=float, default=3.0, help="the client's p99 beside its value alone, at most")
    run.add_argument("--p99-floor-ms", type=float, default=50.0, help="a p99 below it is never a failure")
    run.add_argument("--rss-limit-mb", type=float, default=600.0, help="the resident memory of a node, at most")
    run.add_argument("--kills", type=int, default=3, help="how many nodes are killed and started again at the end")
    run.add_argument("-d", "--directory", help="new, for logs and failing requests; default ./fuzz-<time>")
    run.add_argument("--json", action="store_true", help="print the verdict as JSON")
    again = commands.add_parser("replay", help="send the requests of a file to three new nodes")
    again.add_argument("file")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
