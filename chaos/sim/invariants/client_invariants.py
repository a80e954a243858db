"""What clients were told during a simulated run, and the invariants of that history.

Every acked record is read where it was acked. The records of an idempotent producer are there once, in order, without
gaps, in the partition that they were sent to. A record's value says who wrote it, where to, and its number:
"producer/partition/number".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .invariant_broken import InvariantBroken


@dataclass(slots=True)
class History:
    """`acked`: the offset by (partition, producer, number). `consumed`: the values by offset, for each partition."""

    acked: dict[tuple[int, str, int], int] = field(default_factory=dict)
    consumed: dict[int, dict[int, str]] = field(default_factory=dict)
    sent: int = 0
    longest_ack_gap_s: float = 0.0
    last_ack_s: float | None = None

    def on_ack(self, now_s: float) -> None:
        """Update the longest time between two acks."""
        if self.last_ack_s is not None:
            self.longest_ack_gap_s = max(self.longest_ack_gap_s, now_s - self.last_ack_s)
        self.last_ack_s = now_s


def check_history(history: History) -> None:
    """Check the invariants above. Raises `InvariantBroken`."""
    for (partition, producer, number), offset in history.acked.items():
        value = f"{producer}/{partition}/{number}"
        found = history.consumed.get(partition, {}).get(offset)
        if found != value:
            raise InvariantBroken("every acked record is read", f"{value} acked at {offset}, there is {found}")
    for partition, values in history.consumed.items():
        numbers: dict[str, int] = {}
        for offset in sorted(values):
            producer, sent_to, text = values[offset].split("/")
            if int(sent_to) != partition:
                detail = f"partition {partition} at {offset}: {values[offset]}"
                raise InvariantBroken("a record is in the partition that it was sent to", detail)
            if int(text) != numbers.get(producer, 0):
                detail = f"partition {partition} at {offset}: {values[offset]} after {numbers.get(producer, 0) - 1}"
                raise InvariantBroken("records are there once and in order", detail)
            numbers[producer] = int(text) + 1
