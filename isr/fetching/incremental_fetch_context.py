"""What the leader has to look at for a follower's incremental fetch session (KIP-227): partitions with news, not all.

A follower may follow thousands of partitions of one leader, of which few have anything to tell at a time. A
`FetchWatch` belongs to one session. A partition in it is *quiet* when the follower is at the end of the log, in the
ISR or asked for, and has been told all there is; a fetch that does not name it says nothing new of it either. Whatever
changes a partition (records, a high watermark, an ISR, a role) wakes it in every watch, and it is read again with the
next fetch until it is quiet.

What each fetch would have told of the quiet ones is that the follower was caught up at that time. It is remembered once
a watch, and credited to the partition when it wakes. And lest a change that nobody thought of be missed for ever, some
of the quiet ones are looked at in turn, now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias
from uuid import UUID

from ...wire.types import TopicPartition
from ..purgatory.purgatory import DelayedFetch
from ..replica import Replica

WatchKey: TypeAlias = tuple[UUID, int]
AUDIT_INTERVAL_MS = 250
AUDITED_AT_ONCE = 20
LOOKED_AT_ONCE = 500


class IncrementalFetchContext:
    """The partitions of one follower's session; made by `Watches.open`."""

    __slots__ = (
        "_audit",
        "_audited_ms",
        "_watches",
        "awake",
        "keys",
        "last_fetch_ms",
        "number",
        "parked",
        "replica_id",
    )

    def __init__(self, watches: Watches, number: int, replica_id: int) -> None:
        self._watches = watches
        self.number = number
        self.replica_id = replica_id
        self.keys: dict[WatchKey, TopicPartition | None] = {}
        """All partitions, with their names as far as they are known here."""
        self.awake: dict[WatchKey, None] = {}
        """Those to look at, in the order in which they get their turn."""
        self.last_fetch_ms: int | None = None
        self.parked: DelayedFetch | None = None
        self._audit: Iterator[WatchKey] = iter(())
        self._audited_ms = 0

    def want(self, key: WatchKey) -> None:
        """The follower fetches the partition, from now on or with other parameters."""
        self.keys.setdefault(key, None)
        self.awake[key] = None

    def forget(self, key: WatchKey) -> None:
        """The follower fetches it no more."""
        name = self.keys.pop(key, None)
        self.awake.pop(key, None)
        if name is not None:
            self._watches.unlist(self, name)

    def found(self, key: WatchKey, name: TopicPartition) -> None:
        """The partition's name here is known."""
        if key in self.keys and self.keys[key] != name:
            self.keys[key] = name
            self._watches.enlist(self, name, key)

    def begin(self, now_ms: int) -> None:
        """A fetch has come."""
        self.last_fetch_ms = now_ms
        if now_ms - self._audited_ms >= AUDIT_INTERVAL_MS:
            self._audited_ms = now_ms
            chosen = list(islice(self._audit, AUDITED_AT_ONCE))
            if not chosen:
                self._audit = iter(list(self.keys))
            self.awake.update((key, None) for key in chosen if key in self.keys)

    def take_awake(self) -> list[WatchKey]:
        """What to look at now: not more than `LOOKED_AT_ONCE`, those that wait longest.

        They count as quiet from here on: give back, by `stays_awake`, what is not; what changes while it is looked at
        wakes again by itself.
        """
        taken = list(islice(self.awake, LOOKED_AT_ONCE))
        for key in taken:
            del self.awake[key]
        return taken

    def stays_awake(self, key: WatchKey) -> None:
        """The partition was looked at and has more to tell, or soon will have."""
        if key in self.keys:
            self.awake[key] = None

    def close(self) -> None:
        """The session is gone."""
        for name in self.keys.values():
            if name is not None:
                self._watches.unlist(self, name)
        self.keys.clear()
        self.awake.clear()


class Watches:
    """All watches of a broker, by partition.

    `is_held_back` says of a replica and a follower that it would not get the records now.
    """

    def __init__(self, is_held_back: Callable[[Replica, int], bool] = lambda replica, replica_id: False) -> None:
        self._is_held_back = is_held_back
        self._by_partition: dict[TopicPartition, dict[int, tuple[IncrementalFetchContext, WatchKey]]] = {}
        self._opened = 0

    def open(self, replica_id: int) -> IncrementalFetchContext:
        """A watch for a new session of that follower."""
        self._opened += 1
        return IncrementalFetchContext(self, self._opened, replica_id)

    def enlist(self, watch: IncrementalFetchContext, name: TopicPartition, key: WatchKey) -> None:
        self._by_partition.setdefault(name, {})[watch.number] = (watch, key)

    def unlist(self, watch: IncrementalFetchContext, name: TopicPartition) -> None:
        watching = self._by_partition.get(name)
        if watching is not None:
            watching.pop(watch.number, None)
            if not watching:
                del self._by_partition[name]

    def on_appended(self, replica: Replica, size_bytes: int) -> None:
        """The leader's log has grown."""
        for watch in self._wake(replica):
            if watch.parked is not None and not self._is_held_back(replica, watch.replica_id):
                watch.parked.feed(size_bytes)

    def on_changed(self, replica: Replica) -> None:
        """There is something to tell with the next answer: a high watermark, an ISR, an epoch."""
        self._wake(replica)

    def on_role_lost(self, replica: Replica) -> None:
        """The replica leads no more, is gone or offline: who waits for it shall know at once."""
        for watch in self._wake(replica):
            if watch.parked is not None:
                watch.parked.finish()

    def _wake(self, replica: Replica) -> list[IncrementalFetchContext]:
        watching = self._by_partition.get(replica.topic_partition)
        if not watching:
            return []
        leader = replica.partition.leader
        woken = []
        for watch, key in watching.values():
            woken.append(watch)
            if key not in watch.awake:
                watch.awake[key] = None
                follower = None if leader is None else leader.followers.get(watch.replica_id)
                if follower is not None and watch.last_fetch_ms is not None:
                    follower.was_quiet_until(watch.last_fetch_ms)
        return woken
