"""The figures of a report: counts and latencies of each second, gaps between acks, faults, leaders.

Their size is bounded by the duration of a run, so the latencies of each second are counted in few buckets. A second
with a thousand acks has some 25 of them; an HdrHistogram for 1 us to an hour with two digits would have 27 kB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SECOND_NS = 10**9
GAP_MIN_NS = 250_000_000
AFTERMATH_NS = 10 * SECOND_NS
LEADERS_MAX = 100_000
_BUCKETS_PER_DOUBLING = 4


def latency_bucket(ns: int) -> int:
    """The bucket of a latency: 0 at 1 us, and four buckets for each doubling."""
    us = max(1, ns // 1000)
    doublings = us.bit_length() - 1
    return doublings * _BUCKETS_PER_DOUBLING + ((us << 2 >> doublings) & 3)


def bucket_ms(bucket: int) -> float:
    """The upper edge of a bucket, in milliseconds."""
    doublings, quarter = divmod(bucket, _BUCKETS_PER_DOUBLING)
    return float((1 << doublings) * (5 + quarter)) / 4 / 1000


def quantile_ms(histogram: Mapping[int, int], q: float) -> float | None:
    """The upper edge of the bucket with the quantile `q`; None for an empty histogram."""
    total = sum(histogram.values())
    seen = 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= q * total:
            return bucket_ms(bucket)
    return None


@dataclass
class Second:
    """The figures of one second. `read` does not count the final read; `committed` counts transactions."""

    acked: int = 0
    failed: int = 0
    read: int = 0
    committed: int = 0
    latency: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which a producer waited for acks of a partition and got none."""

    producer: int
    place: str
    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass
class FaultSpan:
    """A fault from its begin to its heal; `end_ns` is None if it was never healed."""

    fault: str
    target: str
    start_ns: int
    end_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Leaders, in-sync replicas and the controller, as an observer saw them."""

    at_ns: int
    controller: int | None
    leaders: tuple[int, ...]
    isr: tuple[tuple[int, ...], ...]


@dataclass
class TimeSeries:
    """The figures of a run, filled line by line. The acks of a producer must come in the order of their ends."""

    seconds: dict[int, Second] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    faults: dict[int, FaultSpan] = field(default_factory=dict)
    leaders: list[ClusterView] = field(default_factory=list)
    stalls: list[tuple[int, int]] = field(default_factory=list)
    commits: dict[int, int] = field(default_factory=dict)
    """Reported commits of transactions, by the bucket of their latency."""
    first_ns: int | None = None
    last_ns: int = 0
    origin_ns: int = 0
    """The time from which others are counted, once everything is judged."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the run says of itself: version, seed, faults to choose from, load. Empty where there was no nemesis."""
    _last_ack: dict[tuple[int, str], int] = field(default_factory=dict)

    def acked(self, producer: int, place: str, start_ns: int, end_ns: int, *, timed: bool = True) -> None:
        """An ack. A record that was sent before the last ack of its partition waited only from that ack on.

        Not `timed`: the client does not know when the send began, so there is no latency.
        """
        second = self.second(end_ns)
        second.acked += 1
        if timed:
            bucket = latency_bucket(end_ns - start_ns)
            second.latency[bucket] = second.latency.get(bucket, 0) + 1
        waited_from = max(start_ns, self._last_ack.get((producer, place), 0 if timed else end_ns))
        self._last_ack[producer, place] = max(end_ns, waited_from)
        if end_ns - waited_from > GAP_MIN_NS:
            self.gaps.append(Gap(producer, place, waited_from, end_ns))

    def committed(self, asked_ns: int, end_ns: int) -> None:
        """A commit of a transaction that was reported."""
        self.second(end_ns).committed += 1
        bucket = latency_bucket(end_ns - asked_ns)
        self.commits[bucket] = self.commits.get(bucket, 0) + 1

    def second(self, at_ns: int) -> Second:
        """The figures of the second that holds this time."""
        if self.first_ns is None or at_ns < self.first_ns:
            self.first_ns = at_ns
        self.last_ns = max(self.last_ns, at_ns)
        return self.seconds.setdefault(at_ns // SECOND_NS, Second())

    def fault(self, line: Mapping[str, Any]) -> None:
        """The begin (`invoke`) or the end (`info`) of a fault."""
        if line["type"] == "invoke":
            self.faults[line["id"]] = FaultSpan(line["fault"], line.get("target", ""), line["start"])
        elif line["id"] in self.faults:
            self.faults[line["id"]].end_ns = line["end"]

    def cluster(self, line: Mapping[str, Any]) -> None:
        """What an observer saw."""
        if len(self.leaders) < LEADERS_MAX:
            isr = tuple(tuple(one) for one in line.get("isr", ()))
            self.leaders.append(ClusterView(line["start"], line.get("controller"), tuple(line["leaders"]), isr))

    def longest_gaps(self) -> dict[str, Gap]:
        """The longest gap of each kind of fault. A gap counts for the latest fault, up to ten seconds after its end."""
        worst: dict[str, Gap] = {}
        spans = sorted(self.faults.values(), key=lambda span: span.start_ns)
        for gap in self.gaps:
            blamed = [span for span in spans if span.start_ns <= gap.end_ns and gap.start_ns <= _until_ns(span)]
            kind = blamed[-1].fault if blamed else "none"
            if kind not in worst or gap.seconds > worst[kind].seconds:
                worst[kind] = gap
        return worst


def _until_ns(span: FaultSpan) -> int:
    return (span.end_ns if span.end_ns is not None else span.start_ns) + AFTERMATH_NS
