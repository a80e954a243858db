"""The verdict of a fuzz run: a table for people, JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .attack import Finding
from .steady_client import Latencies


@dataclass(slots=True)
class AttackResult:
    """All runs of one attack."""

    name: str
    seconds: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)
    latencies: Latencies | None = None
    rss_peak_mb: float = 0.0
    log_lines: int = 0


@dataclass(slots=True)
class FuzzVerdict:
    """What a run found. `limits` holds the bounds that it was judged by."""

    seed: int
    limits: Mapping[str, float]
    alone: Latencies
    attacks: list[AttackResult]
    findings: list[Finding]
    totals: Mapping[str, int]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """The verdict for `--json`."""
        return {
            "ok": self.ok,
            "seed": self.seed,
            "limits": dict(self.limits),
            "alone": _figures(self.alone),
            "attacks": [{**asdict(one), "latencies": _figures(one.latencies)} for one in self.attacks],
            "findings": [asdict(finding) for finding in self.findings],
            "totals": dict(self.totals),
        }

    def lines(self) -> Iterator[str]:
        """The verdict as a table."""
        yield f"{'attack':20} {'s':>6} {'requests':>9} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'x p99':>6} " + (
            f"{'RSS MB':>7} {'log':>6}"
        )
        yield self._row("(client alone)", 0.0, 0, self.alone, "")
        for one in self.attacks:
            memory = f"{one.rss_peak_mb:7.0f} {one.log_lines:6}"
            yield self._row(one.name, one.seconds, sum(one.outcomes.values()), one.latencies, memory)
        yield "  ".join(f"{name} {number:,}" for name, number in self.totals.items())
        for finding in self.findings:
            yield f"FAILED {finding.attack}: {finding.kind}: {finding.text}"
            yield f"    again: {finding.replay}"
        yield f"{'OK' if self.ok else 'FAILED'} (seed {self.seed})"

    def _row(self, name: str, seconds: float, requests: int, at: Latencies | None, memory: str) -> str:
        if at is None or math.isnan(at.p99_ms):
            figures = f"{'-':>8} {'-':>8} {'-':>8} {'-':>6}"
        else:
            figures = f"{at.p50_ms:8.1f} {at.p99_ms:8.1f} {at.max_ms:8.0f} {at.p99_ms / self.alone.p99_ms:6.1f}"
        return f"{name:20} {seconds:6.1f} {requests:9,} {figures} {memory}".rstrip()


def _figures(latencies: Latencies | None) -> dict[str, float | None] | None:
    if latencies is None:
        return None
    return {name: None if math.isnan(value) else value for name, value in asdict(latencies).items()}
