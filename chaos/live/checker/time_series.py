"""What a report draws: counts and latencies a second, gaps between acks, faults, leaders. Bounded by a run's time."""

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
    """A number that grows by four each time the latency doubles, from 0 at 1 us."""
    us = max(1, ns // 1000)
    doublings = us.bit_length() - 1
    return doublings * _BUCKETS_PER_DOUBLING + ((us << 2 >> doublings) & 3)


def bucket_ms(bucket: int) -> float:
    """The upper edge of a bucket, in milliseconds."""
    doublings, quarter = divmod(bucket, _BUCKETS_PER_DOUBLING)
    return float((1 << doublings) * (5 + quarter)) / 4 / 1000


def quantile_ms(histogram: Mapping[int, int], q: float) -> float | None:
    """The latency that a share `q` stays within; None of nothing."""
    total = sum(histogram.values())
    seen = 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= q * total:
            return bucket_ms(bucket)
    return None


@dataclass
class Second:
    """One second of the run. `read` is without the final read."""

    acked: int = 0
    failed: int = 0
    read: int = 0
    latency: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gap:
    """A producer had sends on the way to a partition and got no ack from it for so long."""

    producer: int
    place: str
    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


@dataclass
class FaultSpan:
    """A fault from its infliction until it was taken back; `end_ns` None when it never was."""

    fault: str
    target: str
    start_ns: int
    end_ns: int | None = None


@dataclass(frozen=True, slots=True)
class LeadersSeen:
    """A change of leaders, in-sync replicas or the controller, as an observer saw it."""

    at_ns: int
    controller: int | None
    leaders: tuple[int, ...]
    isr: tuple[tuple[int, ...], ...]


@dataclass
class TimeSeries:
    """Filled line by line. A producer's acks must come in the order of their ends."""

    seconds: dict[int, Second] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    faults: dict[int, FaultSpan] = field(default_factory=dict)
    leaders: list[LeadersSeen] = field(default_factory=list)
    stalls: list[tuple[int, int]] = field(default_factory=list)
    first_ns: int | None = None
    last_ns: int = 0
    _last_ack: dict[tuple[int, str], int] = field(default_factory=dict)

    def acked(self, producer: int, place: str, start_ns: int, end_ns: int, *, timed: bool = True) -> None:
        """An ack. What waited since before the last ack of the partition waited only from that ack on.

        Not `timed`: the client tells no start, so that there is no latency.
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

    def second(self, at_ns: int) -> Second:
        """The second that holds this time."""
        if self.first_ns is None or at_ns < self.first_ns:
            self.first_ns = at_ns
        self.last_ns = max(self.last_ns, at_ns)
        return self.seconds.setdefault(at_ns // SECOND_NS, Second())

    def fault(self, line: Mapping[str, Any]) -> None:
        """A fault's begin (`invoke`) or end (`info`)."""
        if line["type"] == "invoke":
            self.faults[line["id"]] = FaultSpan(line["fault"], line.get("target", ""), line["start"])
        elif line["id"] in self.faults:
            self.faults[line["id"]].end_ns = line["end"]

    def cluster(self, line: Mapping[str, Any]) -> None:
        """What an observer saw."""
        if len(self.leaders) < LEADERS_MAX:
            isr = tuple(tuple(one) for one in line.get("isr", ()))
            self.leaders.append(LeadersSeen(line["start"], line.get("controller"), tuple(line["leaders"]), isr))

    def longest_gaps(self) -> dict[str, Gap]:
        """The longest gap for each kind of fault: of those that a fault's time, or the ten seconds after, touches."""
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
