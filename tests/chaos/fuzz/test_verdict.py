"""The verdict of a fuzz run as people and programs see it."""

from __future__ import annotations

import json
import math

from raftwerk.chaos.fuzz.attack import Finding
from raftwerk.chaos.fuzz.steady_client import summarize
from raftwerk.chaos.fuzz.verdict import AttackResult, FuzzVerdict


def test_latencies_are_summarized() -> None:
    found = summarize([float(number) for number in range(100, 0, -1)])
    assert (found.acked, found.p50_ms, found.p99_ms, found.max_ms) == (100, 51.0, 100.0, 100.0)
    assert math.isnan(summarize([]).p99_ms)


def test_a_finding_fails_the_run_and_names_its_replay() -> None:
    attack = AttackResult("vote", 2.0, {"answered": 12}, summarize([30.0]), 50.0, 3)
    finding = Finding("vote", "traceback", "node 1: it broke", "python -m raftwerk.chaos.fuzz replay f.hex")
    verdict = FuzzVerdict(7, {"rss_mb": 600.0}, summarize([10.0]), [attack], [finding], {"acked": 1})
    lines = list(verdict.lines())
    assert lines[2].split() == ["vote", "2.0", "12", "30.0", "30.0", "30", "3.0", "50", "3"]
    assert lines[-3:] == [
        "FAILED vote: traceback: node 1: it broke",
        "    again: python -m raftwerk.chaos.fuzz replay f.hex",
        "FAILED (seed 7)",
    ]
    assert json.loads(json.dumps(verdict.to_json()))["ok"] is False


def test_a_run_without_findings_and_without_acks_is_valid_json() -> None:
    verdict = FuzzVerdict(1, {}, summarize([]), [AttackResult("vote")], [], {})
    assert list(verdict.lines())[-1] == "OK (seed 1)"
    assert json.loads(json.dumps(verdict.to_json(), allow_nan=False))["alone"]["p99_ms"] is None
