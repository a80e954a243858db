"""What controllers answer, found in the bytes of the simulated connections.

A decision sees the records of all decisions before it, committed or not. So its answer waits until these are committed,
also when it has no records of its own: "what a controller has answered rests on committed metadata". Which records are
there is looked up when the controller reads the request, and what is committed, by `QuorumChecker`, when it answers.

And what it confirms is true: "what a controller has confirmed is in the committed metadata" (`decided_changes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from .....broker.to_controller.controller_channel import has_error_code
from .....cluster.client.client_errors import CONTROLLER_APIS, QUORUM_APIS
from .....raft.replication.partition_raft_log import PartitionRaftLog
from .....raft.types import CommittedBatch
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct, decode_request
from .....wire.errors import ErrorCode
from .....wire.frames import RequestHeader, parse_request_header
from ....specification.metadata.metadata_state import Parts
from ..invariant_broken import InvariantBroken
from .answered_requests import AnsweredRequests, decoded
from .decided_changes import first_untrue

_READ_BYTES = 1 << 20
_DECIDED = (CONTROLLER_APIS - QUORUM_APIS - {ApiKey.INIT_PRODUCER_ID}) | {
    ApiKey.ALTER_PARTITION,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
}
"""The APIs whose requests the active controller decides."""
_UNDECIDED = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.SECURITY_DISABLED,
    ErrorCode.UNSUPPORTED_VERSION,
)
"""An answer with one of these errors was given before anything was decided."""


class CommittedMetadata(Protocol):
    """What is committed, as `QuorumChecker` knows it."""

    @property
    def committed_end(self) -> int:
        """The end offset of what is committed."""
        ...

    @property
    def committed(self) -> Mapping[int, CommittedBatch]:
        """The committed batches, by their base offsets."""
        ...


@dataclass(frozen=True, slots=True)
class _Seen:
    """A request, and the log when its controller reads it: the last batch of metadata that is not committed."""

    header: RequestHeader
    inner: RequestHeader | None
    """Of the client's request, when a broker forwards one."""
    body: bytes
    """Of the client's request, with whatever is before it up to `body_at`."""
    body_at: int
    end_offset: int
    """The end of the controller's log."""
    newest: CommittedBatch | None
    """None: all is committed."""


class ControllerAnswers:
    """Watches the connections to controllers, and judges the answers by what is committed."""

    def __init__(self, committed: CommittedMetadata, states_since: Callable[[int], Iterable[Parts]]) -> None:
        """`states_since` gives the committed metadata just before an offset, and after each batch from there on."""
        self._committed = committed
        self._states_since = states_since
        self._answered: list[tuple[_Seen, bytes]] = []
        """What was answered and is not judged yet."""

    def requests(self, log: Callable[[], PartitionRaftLog | None]) -> AnsweredRequests[_Seen]:
        """What watches one connection to a controller; `log` gives its metadata log while it runs."""
        return AnsweredRequests(
            _DECIDED | {ApiKey.ENVELOPE},
            lambda header, frame, body_at: self._see(log(), header, frame, body_at),
            lambda seen, frame: self._answered.append((seen, frame)),
        )

    def _see(self, log: PartitionRaftLog | None, header: RequestHeader, frame: bytes, body_at: int) -> _Seen | None:
        if log is None:
            return None
        inner = None
        if header.api_key == ApiKey.ENVELOPE:
            frame = decode_request(header.api_key, header.api_version, frame, body_at).request_data
            inner, body_at = parse_request_header(frame)
            if inner.api_key not in _DECIDED:
                return None
        return _Seen(header, inner, frame, body_at, log.end_offset, self._newest_uncommitted(log))

    def _newest_uncommitted(self, log: PartitionRaftLog) -> CommittedBatch | None:
        """The last batch with records of metadata that is not committed; None when all of them are."""
        offset, newest = max(self._committed.committed_end, log.start.end_offset), None
        while offset < log.end_offset:
            for batch in log.read_batches(offset, log.end_offset, _READ_BYTES):
                offset = batch.last_offset + 1
                if batch.records:
                    newest = batch
        return newest

    # ---------------------------------------------------------------- judgement

    def forget(self) -> None:
        """A process has ended in the midst of an event: what it has just answered is not judged."""
        self._answered.clear()

    def check(self) -> None:
        """Judge what was answered in the event that has just run. Raises `InvariantBroken`."""
        answered, self._answered = self._answered, []
        for seen, frame in answered:
            answer = _answer(seen, frame)
            if answer is None or any(has_error_code(answer, code) for code in _UNDECIDED):
                continue
            header, newest = seen.inner or seen.header, seen.newest
            api = ApiKey(header.api_key)
            if newest is not None and self._committed.committed.get(newest.base_offset) != newest:
                detail = (
                    f"{api.name}: {answer.to_dict()}; records up to {newest.last_offset} of epoch "
                    f"{newest.epoch} were there, committed is what is below {self._committed.committed_end}"
                )
                raise InvariantBroken("what a controller has answered rests on committed metadata", detail)
            request = decode_request(api, header.api_version, seen.body, seen.body_at)
            untrue = first_untrue(api, request, answer, self._states_since(seen.end_offset))
            if untrue is not None:
                raise InvariantBroken(
                    "what a controller has confirmed is in the committed metadata", f"{api.name}: {untrue}"
                )


def _answer(seen: _Seen, frame: bytes) -> Struct | None:
    """The answer to who has asked first; None when the controller has not taken what was forwarded to it."""
    answer = decoded(seen.header.api_key, seen.header.api_version, frame)
    if seen.inner is None:
        return answer
    if answer.error_code or answer.response_data is None:
        return None
    return decoded(seen.inner.api_key, seen.inner.api_version, bytes(answer.response_data))
