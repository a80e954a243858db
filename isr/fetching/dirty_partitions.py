"""Which partitions of a follower's session the leader has to look at for an incremental fetch: the dirty ones only.

A follower may fetch thousands of partitions from one leader, and few of them change at a time. A partition of a session
is *clean* when the follower has all records, is in the ISR or proposed for it, and has been told everything; a fetch
that does not name the partition then says nothing new about it. Every change of a partition (records, high watermark,
ISR, epoch, role) makes it *dirty* in all sessions that contain it. The next fetch looks at it, and at each one after
that until it is clean again.

If the leader had looked at a clean partition, each fetch would have told that the follower was caught up at that time.
So a session remembers when the last fetch came, and credits that time to the partition when it becomes dirty. As a
safety net, some clean partitions are looked at now and then, in turn: a change that was not reported is found, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from ...wire.types import TopicPartition
from ..ports import FetchKey
from ..purgatory.purgatory import DelayedFetch
from ..replica import Replica

AUDIT_INTERVAL_MS = 250
AUDITED_AT_ONCE = 20
LOOKED_AT_ONCE = 500


class DirtyPartitions:
    """The partitions of one follower's session, and which of them are dirty; made by `DirtyPartitionTracker.open`."""

    __slots__ = (
        "_audit",
        "_audited_ms",
        "_tracker",
        "dirty",
        "last_fetch_ms",
        "names",
        "number",
        "parked",
        "replica_id",
    )

    def __init__(self, tracker: DirtyPartitionTracker, number: int, replica_id: int) -> None:
        self._tracker = tracker
        self.number = number
        self.replica_id = replica_id
        self.names: dict[FetchKey, TopicPartition | None] = {}
        """All partitions, with their names as far as they are known here."""
        self.dirty: dict[FetchKey, None] = {}
        """The dirty ones, in the order in which they are looked at."""
        self.last_fetch_ms: int | None = None
        self.parked: DelayedFetch | None = None
        """The fetch of this session that waits for a change."""
        self._audit: Iterator[FetchKey] = iter(())
        self._audited_ms = 0

    def add(self, key: FetchKey) -> None:
        """The follower fetches the partition from now on, or with other parameters."""
        self.names.setdefault(key, None)
        self.dirty[key] = None

    def remove(self, key: FetchKey) -> None:
        """The follower does not fetch the partition any more."""
        name = self.names.pop(key, None)
        self.dirty.pop(key, None)
        if name is not None:
            self._tracker.unlist(self, name)

    def set_name(self, key: FetchKey, name: TopicPartition) -> None:
        """The partition's name is known: its changes are found by that."""
        if key in self.names and self.names[key] != name:
            self.names[key] = name
            self._tracker.enlist(self, name, key)

    def on_fetch(self, now_ms: int) -> None:
        """A fetch of the session has come."""
        self.last_fetch_ms = now_ms
        if now_ms - self._audited_ms >= AUDIT_INTERVAL_MS:
            self._audited_ms = now_ms
            chosen = list(islice(self._audit, AUDITED_AT_ONCE))
            if not chosen:
                self._audit = iter(list(self.names))
            self.dirty.update((key, None) for key in chosen if key in self.names)

    def take(self) -> list[FetchKey]:
        """What to look at now: at most `LOOKED_AT_ONCE` dirty partitions, those first that have waited longest.

        They count as clean from now on. The caller gives back, by `mark`, those that are not. A partition that changes
        while it is looked at becomes dirty as always.
        """
        taken = list(islice(self.dirty, LOOKED_AT_ONCE))
        for key in taken:
            del self.dirty[key]
        return taken

    def mark(self, key: FetchKey) -> None:
        """The partition is dirty."""
        if key in self.names:
            self.dirty[key] = None

    def close(self) -> None:
        """The session has ended."""
        for name in self.names.values():
            if name is not None:
                self._tracker.unlist(self, name)
        self.names.clear()
        self.dirty.clear()


class DirtyPartitionTracker:
    """Marks changed partitions as dirty in all sessions of a broker.

    `is_throttled(replica, replica_id)` says whether that follower would get no records of the replica now.
    """

    def __init__(self, is_throttled: Callable[[Replica, int], bool] = lambda replica, replica_id: False) -> None:
        self._is_throttled = is_throttled
        self._by_partition: dict[TopicPartition, dict[int, tuple[DirtyPartitions, FetchKey]]] = {}
        self._opened = 0

    def open(self, replica_id: int) -> DirtyPartitions:
        """For a new session of that follower; close it with the session."""
        self._opened += 1
        return DirtyPartitions(self, self._opened, replica_id)

    def enlist(self, session: DirtyPartitions, name: TopicPartition, key: FetchKey) -> None:
        """The session contains the partition."""
        self._by_partition.setdefault(name, {})[session.number] = (session, key)

    def unlist(self, session: DirtyPartitions, name: TopicPartition) -> None:
        """The session does not contain the partition any more."""
        sessions = self._by_partition.get(name)
        if sessions is not None:
            sessions.pop(session.number, None)
            if not sessions:
                del self._by_partition[name]

    def on_appended(self, replica: Replica, size_bytes: int) -> None:
        """The leader's log has grown."""
        for session in self._mark(replica):
            if session.parked is not None and not self._is_throttled(replica, session.replica_id):
                session.parked.add_bytes(size_bytes)

    def on_changed(self, replica: Replica) -> None:
        """The next answer has something to tell: a high watermark, an ISR, an epoch."""
        self._mark(replica)

    def on_role_lost(self, replica: Replica) -> None:
        """The replica does not lead any more, is gone or offline: followers that wait for it are answered at once."""
        for session in self._mark(replica):
            if session.parked is not None:
                session.parked.finish()

    def _mark(self, replica: Replica) -> list[DirtyPartitions]:
        """Make the partition dirty; returns the sessions that contain it."""
        listed = self._by_partition.get(replica.topic_partition)
        if not listed:
            return []
        leader = replica.partition.leader
        sessions = []
        for session, key in listed.values():
            sessions.append(session)
            if key not in session.dirty:
                session.dirty[key] = None
                follower = None if leader is None else leader.followers.get(session.replica_id)
                if follower is not None and session.last_fetch_ms is not None:
                    follower.was_fetching_until(session.last_fetch_ms)
        return sessions
