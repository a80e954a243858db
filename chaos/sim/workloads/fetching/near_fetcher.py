"""The requests of a consumer in the simulator that reads from near replicas: one fetch session with each broker.

A session (KIP-227) is told what has changed: positions, leader epochs, new partitions, and those that are read
elsewhere now. After any error, or an answer that is lost, the next fetch begins a new one. Now and then a request names
an epoch that was used before, which the broker must refuse.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from .....cluster.client.cluster_client import ClusterClient
from .....wire.api_keys import ApiKey
from .....wire.errors import ErrorCode
from .....wire.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    decode_fetch_response,
    encode_fetch_request,
)
from ...invariants.invariant_broken import InvariantBroken

_BY_NAME, _BY_ID = 12, 17
_TIMEOUT_S = 3.0
_NEW_SESSION_PROBABILITY = 0.03
_FORMER_EPOCH_PROBABILITY = 0.03
_WITHOUT_SESSION_PROBABILITY = 0.1


class Read(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(slots=True)
class _Session:
    session_id: int
    epoch: int = 1
    wanted: dict[Read, FetchPartition] = field(default_factory=dict)


class NearFetcher:
    """Fetches, by the names or the ids of topics. `ids` has those that are known."""

    def __init__(self, cluster: ClusterClient, rng: random.Random, rack: str, ids: Mapping[str, UUID]) -> None:
        self.isolation_level = rng.randrange(2)
        self._cluster = cluster
        self._rng = rng
        self._rack = rack
        self._ids = ids
        self._version = rng.choice((_BY_NAME, _BY_ID))
        self._max_bytes = rng.choice((300, 3_000, 1 << 20))
        self._max_wait_ms = rng.choice((100, 500, 2_000))
        self._sessions: dict[int, _Session] = {}

    async def fetch(self, broker: int, wanted: Mapping[Read, FetchPartition]) -> dict[Read, FetchPartitionResponse]:
        """The rows of one fetch; none after an error of the session. Raises one of `NO_ANSWER` without an answer."""
        session = self._sessions.pop(broker, None)
        if session is None or self._rng.random() < _NEW_SESSION_PROBABILITY:
            is_final = self._rng.random() < _WITHOUT_SESSION_PROBABILITY
            request = FetchRequest(session_id=0 if session is None else session.session_id)
            request.session_epoch = -1 if is_final else 0
            response = await self._send(broker, request, wanted, ())
            if response.session_id and not response.error_code:
                self._sessions[broker] = _Session(response.session_id, wanted=dict(wanted))
            return self._rows(response)
        is_former = session.epoch > 1 and self._rng.random() < _FORMER_EPOCH_PROBABILITY
        request = FetchRequest(session_id=session.session_id, session_epoch=session.epoch - is_former)
        changed = {key: one for key, one in wanted.items() if session.wanted.get(key) != one}
        forgotten = [key for key in session.wanted if key not in wanted]
        response = await self._send(broker, request, changed, forgotten)
        if is_former and not response.error_code:
            detail = f"{broker} answers epoch {session.epoch - 1} of {session.session_id} again"
            raise InvariantBroken("a fetch session goes on by its epochs", detail)
        if not response.error_code:
            self._sessions[broker] = _Session(session.session_id, session.epoch + 1, dict(wanted))
        return self._rows(response)

    async def ask_with_former_epoch(self, broker: int, key: Read, wanted: FetchPartition) -> None:
        """A broker that has answered in a leader epoch must refuse a fetch with the one before, also as a follower."""
        former = FetchPartition(key.partition, wanted.current_leader_epoch - 1, wanted.fetch_offset)
        response = await self._send(broker, FetchRequest(), {key: former}, ())
        row = self._rows(response).get(key)
        if row is not None and row.error_code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            detail = f"{key}: {broker} answers epoch {former.current_leader_epoch} with {row.error_code}"
            raise InvariantBroken("stale leader epochs are refused", detail)

    async def _send(
        self,
        broker: int,
        request: FetchRequest,
        wanted: Mapping[Read, FetchPartition],
        forgotten: tuple[Read, ...] | list[Read],
    ) -> FetchResponse:
        request.isolation_level, request.rack_id = self.isolation_level, self._rack
        request.max_bytes, request.max_wait_ms = self._max_bytes, self._max_wait_ms
        request.topics = [FetchTopic(*self._named(key.topic), [one]) for key, one in wanted.items()]
        request.forgotten = [ForgottenTopic(*self._named(key.topic), [key.partition]) for key in forgotten]
        connection = await self._cluster.connection(broker)
        body = [encode_fetch_request(self._version, request)]
        answer = await connection.send_raw(ApiKey.FETCH, self._version, body, timeout_s=_TIMEOUT_S)
        return decode_fetch_response(self._version, answer)

    def _named(self, topic: str) -> tuple[str | None, UUID | None]:
        return (None, self._ids[topic]) if self._version == _BY_ID else (topic, None)

    def _rows(self, response: FetchResponse) -> dict[Read, FetchPartitionResponse]:
        names = {topic_id: name for name, topic_id in self._ids.items()}
        rows: dict[Read, FetchPartitionResponse] = {}
        for topic in response.topics:
            name = topic.name or names.get(topic.topic_id or UUID(int=0), "")
            rows |= {Read(name, row.partition): row for row in topic.partitions}
        return rows
