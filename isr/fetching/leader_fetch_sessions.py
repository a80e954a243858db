"""Incremental fetch sessions, the leader's side (KIP-227): the broker remembers what a consumer or follower fetches.

A fetch with epoch 0 asks for a new session; its answer carries the session's id. Later fetches name the id and the next
epoch, and list only the partitions that changed; their answers contain only partitions with news. Epoch -1 closes the
session, or is a fetch without one. The cache has a fixed number of slots; a new session takes the slot of one that was
not used for two minutes, or of one that is worth less: consumers' before followers', small before large.

As in Kafka, a fetch context says what one request reads and what of it is sent. A follower's session knows which of its
partitions are dirty and reads only those (`dirty_partitions.py`); a consumer's session reads all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TypeAlias
from uuid import UUID

from ...runtime.incremental_work import ITEMS_PER_STEP, PLAIN_STEP, Pace, Work
from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode
from ...wire.fetch import FetchPartition, FetchPartitionResponse, FetchRequest
from ..ports import FetchKey
from .dirty_partitions import DirtyPartitions, DirtyPartitionTracker

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
MAX_EPOCH = 2**31 - 1
MIN_EVICTION_MS = 120_000

Rows: TypeAlias = list[tuple[FetchKey, FetchPartition]]
Answers: TypeAlias = Sequence[tuple[FetchKey, FetchPartitionResponse]]


class CachedPartition:
    """What a session knows of a partition: the last request's fields, and what its last answer said."""

    __slots__ = ("high_watermark", "log_start_offset", "request")

    def __init__(self, request: FetchPartition) -> None:
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1

    def is_news(self, answer: FetchPartitionResponse) -> bool:
        """Whether an incremental response must carry `answer`."""
        return bool(
            answer.records
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.preferred_read_replica >= 0
            or answer.diverging_epoch is not None
            or answer.error_code != ErrorCode.NONE
        )

    def has_news(self, answer: FetchPartitionResponse) -> bool:
        """`is_news`, and remember what the answer says."""
        news = self.is_news(answer)
        self.log_start_offset = answer.log_start_offset
        # After an error, the partition is reported again when it has recovered. A follower that is told to truncate
        # takes nothing else from the answer, and its high watermark may not move again for long.
        taken = answer.error_code == ErrorCode.NONE and answer.diverging_epoch is None
        self.high_watermark = answer.high_watermark if taken else -1
        return news


class FetchSession:
    """One slot of the cache. `dirty` tells what to read for a follower; None where all partitions are read."""

    __slots__ = (
        "created_ms",
        "dirty",
        "epoch",
        "is_follower",
        "last_used_ms",
        "partitions",
        "session_id",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, is_follower: bool, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.is_follower = is_follower
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = 1  # of the next request
        self.partitions: dict[FetchKey, CachedPartition] = {}
        self.dirty: DirtyPartitions | None = None

    def close(self) -> None:
        """The session has ended."""
        if self.dirty is not None:
            self.dirty.close()

    def update(self, request: FetchRequest) -> None:
        """Take over the changes that an incremental request lists.

        A follower drops answers to what it asked for in a former leader epoch, so in another one it is told all again.
        """
        partitions, dirty = self.partitions, self.dirty
        for topic in request.topics:
            name = topic_key(topic.name, topic.topic_id)
            for wanted in topic.partitions:
                key = FetchKey(name, wanted.partition)
                cached = partitions.get(key)
                if cached is None or cached.request.current_leader_epoch != wanted.current_leader_epoch:
                    partitions[key] = CachedPartition(wanted)
                else:
                    cached.request = wanted
                if dirty is not None:
                    dirty.add(key)
        for forgotten in request.forgotten:
            name = topic_key(forgotten.name, forgotten.topic_id)
            for partition in forgotten.partitions:
                key = FetchKey(name, partition)
                partitions.pop(key, None)
                if dirty is not None:
                    dirty.remove(key)


class SessionlessFetchContext:
    """A fetch without a session, or one whose session is refused with `error_code`."""

    __slots__ = ("_rows", "error_code")
    dirty: DirtyPartitions | None = None
    may_wait = True

    def __init__(self, rows: Rows, error_code: int = 0) -> None:
        self._rows = rows
        self.error_code = error_code

    def take(self) -> Rows:
        """The partitions to read now."""
        return self._rows

    def leader_epoch_of(self, key: FetchKey) -> int | None:
        """The leader epoch with which the partition is asked for; None when it is not asked for."""
        return _epoch_in(self._rows, key)

    def close(self) -> tuple[int, int]:
        """Everything is read: the error code of the response, and the session id in it."""
        return 0, 0

    def select(self, answers: Answers) -> Answers:
        """Those that are sent. It is called after `close`, with all answers or with part after part of them."""
        return answers


class FullFetchContext:
    """A fetch that opens a session, if the cache has a slot for it.

    A follower's one that gets a session does not wait: from the next fetch on, the leader looks at dirty partitions
    only. One that gets none waits like any other, else the follower would fetch all again at once, for ever.
    """

    __slots__ = ("_cache", "_now_ms", "_request", "_rows", "_selected", "_session", "_uses_topic_ids")
    dirty: DirtyPartitions | None = None
    error_code = 0

    def __init__(
        self, cache: FetchSessionCache, request: FetchRequest, rows: Rows, uses_topic_ids: bool, now_ms: int
    ) -> None:
        self._cache = cache
        self._request = request
        self._rows = rows
        self._uses_topic_ids = uses_topic_ids
        self._now_ms = now_ms
        self._session: FetchSession | None = None
        self._selected = 0  # so many answers were passed to `select`

    @property
    def may_wait(self) -> bool:
        """Whether it may wait for records, as far as is known now."""
        replica_id = self._request.replica_id
        is_follower_by_id = replica_id >= 0 and self._uses_topic_ids
        return not (is_follower_by_id and self._cache.has_room(replica_id, len(self._rows), self._now_ms))

    def take(self) -> Rows:
        """See `SessionlessFetchContext.take`."""
        return self._rows

    def leader_epoch_of(self, key: FetchKey) -> int | None:
        """See `SessionlessFetchContext.leader_epoch_of`."""
        return _epoch_in(self._rows, key)

    def close(self) -> tuple[int, int]:
        """See `SessionlessFetchContext.close`."""
        request = self._request
        self._session = self._cache.open(request.replica_id, len(self._rows), self._uses_topic_ids, self._now_ms)
        return 0, 0 if self._session is None else self._session.session_id

    def select(self, answers: Answers) -> Answers:
        """See `SessionlessFetchContext.select`."""
        session = self._session
        if session is None:
            return answers
        rows = self._rows[self._selected : self._selected + len(answers)]
        self._selected += len(answers)
        for (key, wanted), (_, answer) in zip(rows, answers, strict=True):
            cached = session.partitions[key] = CachedPartition(wanted)
            cached.has_news(answer)
            if session.dirty is not None:
                session.dirty.add(key)
        return answers


class IncrementalFetchContext:
    """A fetch that continues a session."""

    __slots__ = ("_epoch", "_is_refused", "_session", "dirty")
    error_code = 0
    may_wait = True

    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self._epoch = session.epoch
        self._is_refused = False
        self.dirty = session.dirty

    def take(self) -> Rows:
        """See `SessionlessFetchContext.take`. Dirty partitions count as clean after that, until they are marked."""
        partitions = self._session.partitions
        if self.dirty is None:
            return [(key, cached.request) for key, cached in partitions.items()]
        return [(key, partitions[key].request) for key in self.dirty.take() if key in partitions]

    def leader_epoch_of(self, key: FetchKey) -> int | None:
        """See `SessionlessFetchContext.leader_epoch_of`. A partition that the request does not name counts, too."""
        cached = self._session.partitions.get(key)
        return None if cached is None else cached.request.current_leader_epoch

    def is_news(self, key: FetchKey, answer: FetchPartitionResponse) -> bool:
        """Whether the fetcher has not been told what `answer` says."""
        return self._session.partitions[key].is_news(answer)

    def close(self) -> tuple[int, int]:
        """See `SessionlessFetchContext.close`."""
        session = self._session
        self._is_refused = session.epoch != self._epoch
        sometimes(self._is_refused, "a fetch session went on while an earlier fetch of it was read")
        return int(ErrorCode.INVALID_FETCH_SESSION_EPOCH) if self._is_refused else 0, session.session_id

    def select(self, answers: Answers) -> Answers:
        """See `SessionlessFetchContext.select`. Only answers with news are sent."""
        return [] if self._is_refused else _news(self._session, answers)


FetchContext: TypeAlias = SessionlessFetchContext | FullFetchContext | IncrementalFetchContext


class FetchSessionCache:
    """All sessions of a broker. `slots` is max.incremental.fetch.session.cache.slots."""

    def __init__(
        self, slots: int, rng: random.Random, tracker: DirtyPartitionTracker, *, min_eviction_ms: int = MIN_EVICTION_MS
    ) -> None:
        self._slots = slots
        self._rng = rng
        self._tracker = tracker
        self._min_eviction_ms = min_eviction_ms
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self.evictions_total = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions_total(self) -> int:
        """Partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def context(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> FetchContext:
        """The meaning of `request` by its session id and epoch."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._drop(request.session_id)
            rows = request_rows(request)
            if request.session_epoch == FINAL_EPOCH:
                return SessionlessFetchContext(rows)
            return FullFetchContext(self, request, rows, uses_topic_ids, now_ms)
        session = self._sessions.get(request.session_id)
        error = _session_error(session, request.session_epoch, uses_topic_ids)
        if session is None or error is not None:
            return SessionlessFetchContext([], int(error or ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        session.update(request)
        if not session.partitions:
            self._drop(session.session_id)
            return SessionlessFetchContext([])
        return self._continue(session, now_ms)

    def context_in_steps(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> Work[FetchContext]:
        """The work of `context` for a request that lists many partitions."""
        pace = Pace()
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._drop(request.session_id)
            rows: Rows = []
            for part, size in _parts(request):
                rows += request_rows(part)
                if pace.ends_step(size):
                    yield PLAIN_STEP
            if request.session_epoch == FINAL_EPOCH:
                return SessionlessFetchContext(rows)
            return FullFetchContext(self, request, rows, uses_topic_ids, now_ms)
        session = self._sessions.get(request.session_id)
        error = _session_error(session, request.session_epoch, uses_topic_ids)
        if session is None or error is not None:
            return SessionlessFetchContext([], int(error or ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        context = self._continue(session, now_ms)
        for part, size in _parts(request):
            session.update(part)
            if pace.ends_step(size):
                yield PLAIN_STEP
                if session is not self._sessions.get(request.session_id):
                    return SessionlessFetchContext([], int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        if not session.partitions:
            self._drop(session.session_id)
            return SessionlessFetchContext([])
        return context

    def _continue(self, session: FetchSession, now_ms: int) -> IncrementalFetchContext:
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session
        return IncrementalFetchContext(session)

    def has_room(self, replica_id: int, size: int, now_ms: int) -> bool:
        """Whether `open` would give a session now."""
        return bool(size) and (self._has_free_slot or self._victim(replica_id >= 0, size, now_ms) is not None)

    @property
    def _has_free_slot(self) -> bool:
        return len(self._sessions) < self._slots

    def open(self, replica_id: int, size: int, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        """A new session for `size` partitions of a follower, or a consumer (-1); None when there is no slot for it."""
        is_follower = replica_id >= 0
        if not size or not self._make_room(is_follower, size, now_ms):
            sometimes(is_follower and size, "a follower got no fetch session because all slots were taken")
            return None
        session = FetchSession(self._new_id(), is_follower, uses_topic_ids, now_ms)
        if is_follower and uses_topic_ids:
            session.dirty = self._tracker.open(replica_id)
        self._sessions[session.session_id] = session
        return session

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _make_room(self, is_follower: bool, size: int, now_ms: int) -> bool:
        if self._has_free_slot:
            return True
        victim = self._victim(is_follower, size, now_ms)
        if victim is None:
            return False
        self._drop(victim.session_id)
        sometimes(True, "a fetch session made room for another one")
        self.evictions_total += 1
        return True

    def _victim(self, is_follower: bool, size: int, now_ms: int) -> FetchSession | None:
        """The session whose slot a new one would take; None if all that there are stay."""
        sessions = self._sessions.values()
        oldest = next(iter(sessions), None)
        if oldest is None or now_ms - oldest.last_used_ms > self._min_eviction_ms:
            return oldest
        victim = min((one for one in sessions if self._may_yield(one, is_follower, now_ms)), key=_worth, default=None)
        if victim is None or (is_follower, size) <= (victim.is_follower, len(victim.partitions)):
            return None
        return victim

    def _may_yield(self, session: FetchSession, to_follower: bool, now_ms: int) -> bool:
        return (to_follower and not session.is_follower) or (
            now_ms - session.created_ms > self._min_eviction_ms and to_follower >= session.is_follower
        )

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randint(1, 2**31 - 1)
            if session_id not in self._sessions:
                return session_id


def topic_key(name: str | None, topic_id: UUID | None) -> str | UUID:
    """The request's name for a topic; the zero id when it sent neither."""
    return name if name is not None else topic_id or UUID(int=0)


def request_rows(request: FetchRequest) -> Rows:
    """The partitions that a request lists, in order."""
    return [
        (FetchKey(topic_key(topic.name, topic.topic_id), wanted.partition), wanted)
        for topic in request.topics
        for wanted in topic.partitions
    ]


def _epoch_in(rows: Rows, key: FetchKey) -> int | None:
    return next((wanted.current_leader_epoch for one, wanted in rows if one == key), None)


def _parts(request: FetchRequest) -> Iterator[tuple[FetchRequest, int]]:
    """Requests of few partitions each, which list together what `request` lists; and how many each lists."""
    size = ITEMS_PER_STEP
    for topic in request.topics:
        for start in range(0, len(topic.partitions), size):
            part = topic.partitions[start : start + size]
            yield FetchRequest(topics=[topic._replace(partitions=part)]), len(part)
    for gone in request.forgotten:
        for start in range(0, len(gone.partitions), size):
            left = gone.partitions[start : start + size]
            yield FetchRequest(forgotten=[gone._replace(partitions=left)]), len(left)


def _worth(session: FetchSession) -> tuple[bool, int, int]:
    return session.is_follower, len(session.partitions), session.session_id


def _session_error(session: FetchSession | None, epoch: int, uses_topic_ids: bool) -> ErrorCode | None:
    if session is None:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if session.epoch != epoch:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    if session.uses_topic_ids != uses_topic_ids:
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    return None


def _news(session: FetchSession, answers: Answers) -> Answers:
    """The answers with news. Partitions that had records go to the end, so that each gets its turn."""
    partitions = session.partitions
    result: list[tuple[FetchKey, FetchPartitionResponse]] = []
    for row in answers:
        key, answer = row
        cached = partitions.get(key)
        if cached is None or not cached.has_news(answer):
            continue
        result.append(row)
        if answer.records:
            del partitions[key]
            partitions[key] = cached
    return result
