"""What a leader knows about one follower: its log end offset, and when it was last caught up.

The rule for "caught up" is in `log/log_divergence.py`. Source: Apache Kafka, design of replication; KIP-903 for the
broker epoch.
"""

from __future__ import annotations

from ...log.log_divergence import caught_up_ms

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


class FollowerProgress:
    """Progress of one remote replica. Times are monotonic milliseconds; `None` means not in this leadership."""

    __slots__ = (
        "broker_epoch",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "replica_id",
    )

    def __init__(self, replica_id: int) -> None:
        self.replica_id = replica_id
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch: int | None = None
        self.last_fetch_ms: int | None = None
        self.last_fetch_leader_end_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms: int | None = None

    def reset(self, now_ms: int, leader_end_offset: int, *, new_leader: bool, in_isr: bool) -> None:
        """A new leader epoch begins: members of the ISR count as caught up now, the others never.

        A node that was the leader before keeps the offsets, since its followers did not truncate in between.
        """
        self.last_caught_up_ms = now_ms if in_isr else None
        if new_leader:
            self.log_end_offset = UNKNOWN_OFFSET
            self.log_start_offset = UNKNOWN_OFFSET
            self.broker_epoch = None
            self.last_fetch_ms = None
            self.last_fetch_leader_end_offset = UNKNOWN_OFFSET
        else:
            self.last_fetch_ms = now_ms if in_isr else None
            self.last_fetch_leader_end_offset = leader_end_offset

    def on_fetch(
        self, fetch_offset: int, log_start_offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int
    ) -> None:
        """The replica has all records below `fetch_offset` and asks for more."""
        self.last_caught_up_ms = caught_up_ms(self, fetch_offset, leader_end_offset, now_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.last_fetch_ms = now_ms
        if leader_end_offset > self.last_fetch_leader_end_offset:
            self.last_fetch_leader_end_offset = leader_end_offset

    def leave_isr(self) -> None:
        """The replica has left the ISR: it has to catch up again, no matter when it was in sync."""
        self.last_caught_up_ms = None
        self.last_fetch_ms = None

    def was_fetching_until(self, fetched_ms: int) -> None:
        """The replica went on fetching at the same offset until then: if that was the log end, it was caught up."""
        was_at_end = self.log_end_offset >= self.last_fetch_leader_end_offset
        if was_at_end and self.last_fetch_ms is not None and fetched_ms > self.last_fetch_ms:
            self.last_fetch_ms = fetched_ms
            self._caught_up_at(fetched_ms)

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether it is at the leader's log end, or was caught up not longer than `lag_time_max_ms` ago."""
        if self.log_end_offset == leader_end_offset:
            return True
        return self.last_caught_up_ms is not None and now_ms - self.last_caught_up_ms <= lag_time_max_ms

    def has_fetched_within(self, period_ms: int, now_ms: int) -> bool:
        """Whether its last fetch in this leadership was not longer ago than that."""
        return self.last_fetch_ms is not None and now_ms - self.last_fetch_ms <= period_ms

    def _caught_up_at(self, at_ms: int) -> None:
        if self.last_caught_up_ms is None or at_ms > self.last_caught_up_ms:
            self.last_caught_up_ms = at_ms
