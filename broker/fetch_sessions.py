"""Incremental fetch sessions (KIP-227): the broker remembers what a consumer or follower fetches.

A fetch with epoch 0 asks for a new session; its answer carries the session's id. Later fetches name the id and the next
epoch, and list only the partitions that changed; their answers hold only partitions with news. Epoch -1 closes the
session, or is a fetch without one. The cache has a fixed number of slots; a new session takes a slot from one that was
not used for two minutes, or that is worth less: consumers' before followers', small before large.

A follower's session knows by its `FetchWatch` which of its partitions to look at; a consumer's are looked at all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ..isr.fetching.incremental_fetch_context import IncrementalFetchContext, WatchKey
from ..runtime.invariants import InvariantViolation
from ..wire.errors import ErrorCode
from ..wire.fetch import FetchPartition, FetchPartitionResponse, FetchRequest

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
MAX_EPOCH = 2**31 - 1
MIN_EVICTION_MS = 120_000


class FetchKey(NamedTuple):
    """A partition as the request names it: by topic name up to version 12, by topic id from 13 on."""

    topic: str | UUID
    partition: int


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
        """`is_news`, and remembers what it says."""
        news = self.is_news(answer)
        self.log_start_offset = answer.log_start_offset
        # After an error, the partition is reported again when it has recovered; a follower that is told to cut its log
        # takes nothing else from the answer, and may be waiting at the end of a log that does not grow.
        taken = answer.error_code == ErrorCode.NONE and answer.diverging_epoch is None
        self.high_watermark = answer.high_watermark if taken else -1
        return news


class Session:
    """One slot of the cache."""

    __slots__ = (
        "created_ms",
        "epoch",
        "is_follower",
        "last_used_ms",
        "partitions",
        "session_id",
        "uses_topic_ids",
        "watch",
    )

    def __init__(self, session_id: int, is_follower: bool, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.is_follower = is_follower
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = 1  # of the next request
        self.partitions: dict[FetchKey, CachedPartition] = {}
        self.watch: IncrementalFetchContext | None = None

    def close(self) -> None:
        """The session is gone."""
        if self.watch is not None:
            self.watch.close()

    def update(self, request: FetchRequest) -> None:
        """Take over the changes that an incremental request lists."""
        partitions = self.partitions
        for topic in request.topics:
            name = topic_key(topic.name, topic.topic_id)
            for wanted in topic.partitions:
                key = FetchKey(name, wanted.partition)
                cached = partitions.get(key)
                if cached is None:
                    partitions[key] = CachedPartition(wanted)
                else:
                    cached.request = wanted
                if self.watch is not None:
                    self.watch.want(watch_key(key))
        for forgotten in request.forgotten:
            name = topic_key(forgotten.name, forgotten.topic_id)
            for partition in forgotten.partitions:
                key = FetchKey(name, partition)
                partitions.pop(key, None)
                if self.watch is not None:
                    self.watch.forget(watch_key(key))


Rows: TypeAlias = list[tuple[FetchKey, FetchPartition]]
Answers: TypeAlias = Sequence[tuple[FetchKey, FetchPartitionResponse]]


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What one fetch request is to read, and how its response is filtered.

    `finish(answers)` returns the top-level error, the session id to send, and the answers to send, in order.
    """

    rows: Rows
    finish: Callable[[Answers], tuple[int, int, Answers]]
    error_code: int = 0
    session: Session | None = None
    """Where its watch tells what to read, instead of `rows`."""
    opens_watch: bool = False
    """Not to be parked: what it begins is cheaper to wait with."""


class FetchSessionCache:
    """All sessions of a broker. `slots` is max.incremental.fetch.session.cache.slots."""

    def __init__(self, slots: int, rng: random.Random, *, min_eviction_ms: int = MIN_EVICTION_MS) -> None:
        self._slots = slots
        self._rng = rng
        self._min_eviction_ms = min_eviction_ms
        self._sessions: dict[int, Session] = {}  # least recently used first
        self.evictions_total = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions_total(self) -> int:
        """Partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def context(
        self,
        request: FetchRequest,
        uses_topic_ids: bool,
        now_ms: int,
        open_watch: Callable[[int], IncrementalFetchContext] | None = None,
    ) -> FetchContext:
        """The meaning of `request` by its session id and epoch. `open_watch` makes the watches of followers."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._drop(request.session_id)
            rows = request_rows(request)
            if request.session_epoch == FINAL_EPOCH:
                return FetchContext(rows, _sessionless)
            watched = open_watch if request.replica_id >= 0 and uses_topic_ids else None
            opener = self._opener(request, rows, uses_topic_ids, now_ms, watched)
            return FetchContext(rows, opener, opens_watch=watched is not None)
        session = self._sessions.get(request.session_id)
        error = _session_error(session, request.session_epoch, uses_topic_ids)
        if session is None or error is not None:
            return FetchContext([], _sessionless, int(error or ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        return self._continue(session, request, now_ms)

    def _continue(self, session: Session, request: FetchRequest, now_ms: int) -> FetchContext:
        session.update(request)
        if not session.partitions:
            self._drop(session.session_id)
            return FetchContext([], _sessionless)
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session
        expected = session.epoch

        def finish(answers: Answers) -> tuple[int, int, Answers]:
            if session.epoch != expected:
                return int(ErrorCode.INVALID_FETCH_SESSION_EPOCH), session.session_id, []
            return 0, session.session_id, _news(session, answers)

        if session.watch is not None:
            return FetchContext([], finish, session=session)
        return FetchContext([(key, cached.request) for key, cached in session.partitions.items()], finish)

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _opener(
        self,
        request: FetchRequest,
        rows: Rows,
        uses_topic_ids: bool,
        now_ms: int,
        open_watch: Callable[[int], IncrementalFetchContext] | None,
    ) -> Callable[[Answers], tuple[int, int, Answers]]:
        is_follower = request.replica_id >= 0

        def finish(answers: Answers) -> tuple[int, int, Answers]:
            if not rows or not self._make_room(is_follower, len(rows), now_ms):
                return 0, 0, answers
            session = Session(self._new_id(), is_follower, uses_topic_ids, now_ms)
            for (key, wanted), (_, answer) in zip(rows, answers, strict=True):
                cached = session.partitions[key] = CachedPartition(wanted)
                cached.has_news(answer)
            if open_watch is not None:
                session.watch = open_watch(request.replica_id)
                for key in session.partitions:
                    session.watch.want(watch_key(key))
            self._sessions[session.session_id] = session
            return 0, session.session_id, answers

        return finish

    def _make_room(self, is_follower: bool, size: int, now_ms: int) -> bool:
        sessions = self._sessions
        if self._slots <= 0:
            return False
        if len(sessions) < self._slots:
            return True
        oldest = next(iter(sessions.values()))
        if now_ms - oldest.last_used_ms > self._min_eviction_ms:
            victim = oldest
        else:
            candidates = [one for one in sessions.values() if self._may_yield(one, is_follower, now_ms)]
            if not candidates:
                return False
            victim = min(candidates, key=_worth)
            if (is_follower, size) <= (victim.is_follower, len(victim.partitions)):
                return False
        self._drop(victim.session_id)
        self.evictions_total += 1
        return True

    def _may_yield(self, session: Session, to_follower: bool, now_ms: int) -> bool:
        return (to_follower and not session.is_follower) or (
            now_ms - session.created_ms > self._min_eviction_ms and to_follower >= session.is_follower
        )

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randint(1, 2**31 - 1)
            if session_id not in self._sessions:
                return session_id


def watch_key(key: FetchKey) -> WatchKey:
    """The key in a watch, which is made for sessions with topic ids only."""
    if isinstance(key.topic, str):
        raise InvariantViolation("what is watched is named by topic ids")
    return key.topic, key.partition


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


def _worth(session: Session) -> tuple[bool, int, int]:
    return session.is_follower, len(session.partitions), session.session_id


def _session_error(session: Session | None, epoch: int, uses_topic_ids: bool) -> ErrorCode | None:
    if session is None:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if session.epoch != epoch:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    if session.uses_topic_ids != uses_topic_ids:
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    return None


def _sessionless(answers: Answers) -> tuple[int, int, Answers]:
    return 0, 0, answers


def _news(session: Session, answers: Answers) -> Answers:
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
