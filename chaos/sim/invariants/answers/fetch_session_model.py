"""The incremental fetch sessions of clients and followers (KIP-227), as the bytes of their connections say.

A session holds what its requests have listed, less what they have forgotten, and what its answers have told of each
partition. "A fetch session goes on by its epochs": each epoch is answered once, and in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from .....wire.fetch import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse
from ..invariant_broken import InvariantBroken

FetchedKey = tuple[str | UUID | None, int]
"""A topic by its name or its id, as the request has it, and a partition."""
_FINAL_EPOCH, _INITIAL_EPOCH = -1, 0


def wanted_in(request: FetchRequest) -> dict[FetchedKey, FetchPartition]:
    """What a request lists."""
    return {(topic.name or topic.topic_id, one.partition): one for topic in request.topics for one in topic.partitions}


def rows_in(response: FetchResponse) -> Iterator[tuple[FetchedKey, FetchPartitionResponse]]:
    """The rows of a response."""
    for topic in response.topics:
        for row in topic.partitions:
            yield (topic.name or topic.topic_id, row.partition), row


@dataclass(slots=True)
class FetchSessionModel:
    """One session."""

    wanted: dict[FetchedKey, FetchPartition]
    epoch: int = 1
    """Of the next request."""
    told: dict[FetchedKey, tuple[int, int]] = field(default_factory=dict)
    """The high watermark and the log start offset that were told last, without an error since."""
    with_records: set[FetchedKey] = field(default_factory=set)
    """Partitions with records in the last answer: a full disk refuses them, with all that the answer told."""

    def wanted_after(self, request: FetchRequest) -> dict[FetchedKey, FetchPartition]:
        """What the session holds after this request."""
        merged = {**self.wanted, **wanted_in(request)}
        for topic in request.forgotten:
            for partition in topic.partitions:
                merged.pop((topic.name or topic.topic_id, partition), None)
        return merged

    def told_after(self, request: FetchRequest) -> dict[FetchedKey, tuple[int, int]]:
        """What this request leaves of what was told: what is still wanted, in the same leader epoch, and was taken."""
        wanted, before = self.wanted_after(request), self.wanted
        return {
            key: told
            for key, told in self.told.items()
            if key in wanted
            and wanted[key].current_leader_epoch == before[key].current_leader_epoch
            and not (key in self.with_records and wanted[key].fetch_offset <= before[key].fetch_offset)
        }

    def update(self, request: FetchRequest) -> None:
        """The request was taken."""
        self.told, self.wanted = self.told_after(request), self.wanted_after(request)
        self.with_records.clear()

    def note(self, response: FetchResponse) -> None:
        """The response was sent."""
        for key, row in rows_in(response):
            self.told.pop(key, None)
            if row.records_in_memory():
                self.with_records.add(key)
            if not row.error_code and row.diverging_epoch is None:
                self.told[key] = row.high_watermark, row.log_start_offset


class FetchSessionModels:
    """The sessions of all nodes."""

    def __init__(self) -> None:
        self._sessions: dict[int, dict[int, FetchSessionModel]] = {}

    def forget(self, node_id: int) -> None:
        """The process has ended."""
        self._sessions.pop(node_id, None)

    def find(self, node_id: int, request: FetchRequest) -> FetchSessionModel | None:
        """The session that a request goes on with."""
        if request.session_epoch <= _INITIAL_EPOCH:
            return None
        return self._sessions.get(node_id, {}).get(request.session_id)

    def on_answered(
        self, node_id: int, request: FetchRequest, response: FetchResponse, *, was_known: bool = False
    ) -> FetchSessionModel | None:
        """The session that the answer is of, with what the request has changed. Raises `InvariantBroken`.

        `was_known`: the session was there when the request was read. A later request, on another connection, may have
        ended it since, and nobody waits for this answer.
        """
        sessions = self._sessions.setdefault(node_id, {})
        if request.session_epoch <= _INITIAL_EPOCH:
            sessions.pop(request.session_id, None)
            if request.session_epoch == _INITIAL_EPOCH and response.session_id and not response.error_code:
                sessions[response.session_id] = FetchSessionModel(wanted_in(request))
                sessions[response.session_id].note(response)
            return None
        if response.error_code:
            return None
        session = sessions.get(request.session_id)
        if session is None and was_known:
            return None
        if session is None or request.session_epoch < session.epoch:
            known = "unknown" if session is None else f"at epoch {session.epoch}"
            detail = f"{request.session_id} of node {node_id} answers epoch {request.session_epoch}, it is {known}"
            raise InvariantBroken("a fetch session goes on by its epochs", detail)
        session.epoch = request.session_epoch + 1
        session.update(request)
        return session
