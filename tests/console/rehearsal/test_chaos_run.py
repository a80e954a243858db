"""A chaos run from the console: what is refused, its lines, its verdict, and its end with the console."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raftwerk.console.errors import RequestRefusedError
from raftwerk.console.rehearsal.chaos_run import ChaosRuns
from raftwerk.runtime.clock import SystemClock

PROGRAM = """
import json, os, signal, sys, time
arguments = sys.argv[1:]
if arguments[0] == "faults":
    rows = [("kill", [], False), ("cut", ["there is no iptables"], True), ("power", [], True)]
    for name, left_out, own in rows:
        print(json.dumps({"fault": name, "what": "w", "left_out": left_out, "needs_own_cluster": own}))
    sys.exit()
where = arguments[arguments.index("--output") + 1]
os.makedirs(where)
asked = []
def on_signal(number, _frame):
    asked.append(number)
signal.signal(signal.SIGINT, on_signal)
signal.signal(signal.SIGTERM, on_signal)
print("x" * 200_000, flush=True)
print("begun", *arguments, flush=True)
while not asked:
    time.sleep(0.01)
if asked == [signal.SIGTERM]:
    print("healed", flush=True)
    sys.exit(143)
anomalies = {"lost": {"count": 7, "meaning": "m", "evidence": [{"text": f"r{n}"} for n in range(7)]},
             "torn": {"count": 0, "meaning": "m", "evidence": []}}
names = ("totals", "transactions", "notes", "inflicted", "not_injected", "left_out", "errors")
with open(os.path.join(where, "verdict.json"), "w") as file:
    json.dump({"verdict": "INVALID", "anomalies": anomalies, **{name: {} for name in names}}, file)
"""
"""Stands for `raftwerk chaos`, which takes a minute at least."""


def runs_in(directory: Path, tell: Callable[[str], None] = lambda _: None) -> ChaosRuns:
    return ChaosRuns(str(directory), SystemClock(), tell, [sys.executable, "-c", PROGRAM])


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def look(runs: ChaosRuns, seen: list[bool]) -> None:
    seen += [runs.is_running, runs.as_row()["running"], runs.injects_here]


async def refused(runs: ChaosRuns, **fields: Any) -> RequestRefusedError:
    with pytest.raises(RequestRefusedError) as found:
        await runs.start(fields, "alice")
    return found.value


def test_one_run_goes_to_its_verdict(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[str] = []
        runs = runs_in(tmp_path, told.append)
        assert runs.as_row() == {"running": False}
        await runs.start({"faults": ["kill"], "minutes": 2, "rate": 50}, "alice")
        await until(lambda: len(runs.as_row()["lines"]) == 2)
        row = runs.as_row()
        begun = f"--nemesis kill --minutes 2 --rate 50 --output {row['output']} --stop-at-eof --dir {tmp_path}"
        assert row["lines"] == ["x" * 4_000, f"begun run {begun}"], "a long line is cut"
        assert runs.injects_here
        assert (await refused(runs, faults=["kill"])).status == 409
        seen = runs.version
        runs.ask_to_stop()
        assert runs.as_row()["stopping"]
        await until(lambda: not runs.is_running)
        row = runs.as_row()
        assert row["verdict"]["verdict"] == "INVALID" and row["error"] is None and runs.version > seen
        (anomaly,) = row["verdict"]["anomalies"]
        assert (anomaly["kind"], anomaly["count"], anomaly["evidence"]) == ("lost", 7, ["r0", "r1", "r2", "r3", "r4"])
        assert told == [
            "a chaos run of 2 min with kill has begun, by alice",
            "the chaos run has ended: INVALID",
        ]
        with pytest.raises(RequestRefusedError):
            runs.ask_to_stop()

    asyncio.run(main())


def test_a_run_ends_with_the_console_and_heals(tmp_path: Path) -> None:
    async def main() -> None:
        runs = runs_in(tmp_path)
        await runs.close()  # nothing runs
        await runs.start({"faults": ["power"], "own_cluster": True, "nodes": 5}, "alice")
        await until(lambda: len(runs.as_row()["lines"]) == 2)
        assert "--nodes 5" in runs.as_row()["lines"][1] and not runs.injects_here
        await runs.close()
        row = runs.as_row()
        assert (row["running"], row["verdict"], row["error"]) == (False, None, "healed")

    asyncio.run(main())


@pytest.mark.parametrize("is_first_own", [False, True])
def test_a_run_that_is_being_checked_has_the_cluster_for_itself_already(tmp_path: Path, is_first_own: bool) -> None:
    async def main() -> None:
        runs = runs_in(tmp_path)
        for own in (is_first_own, not is_first_own):
            seen: list[bool] = []
            # Called when the start waits for what the machine can inject: no process runs yet that could be stopped.
            asyncio.get_running_loop().call_soon(look, runs, seen)
            await runs.start({"faults": ["kill"], "own_cluster": own}, "alice")
            assert seen == [True, False, not own]
            await runs.close()
            assert not runs.injects_here

    asyncio.run(main())


def test_what_cannot_be_is_refused_with_its_reason(tmp_path: Path) -> None:
    async def main() -> None:
        runs = runs_in(tmp_path)
        assert "there is no fault burn; there are kill" in str(await refused(runs, faults=["burn"]))
        assert "there is no iptables" in str(await refused(runs, faults=["cut"], own_cluster=True))
        assert "a cluster that the run starts itself" in str(await refused(runs, faults=["power"]))
        wrongs: list[dict[str, Any]] = [{"minutes": 0}, {"minutes": 61}, {"rate": 0}, {"rate": 5001}, {"nodes": 10}]
        for wrong in [*wrongs, {"faults": []}]:
            assert (await refused(runs, **{"faults": ["kill"], **wrong})).status == 400, wrong
        assert not runs.is_running

    asyncio.run(main())
