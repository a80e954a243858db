"""What brokers answer to fetches of consumers, found in the bytes of the simulated connections.

An answer is compared with the replica as it was before and after the time at which it was sent, and with what is
committed: the batches below the highest high watermark that a leader ever had, and a replay of their transactions. So
leaders and followers (KIP-392) are judged alike, in every run:

- "a fetch is answered in the leader epoch that it names", "a position is out of range only outside of the log";
- "a fetch shows nothing above the high watermark", which no leader has passed by then, nor "above the last stable
  offset" at read_committed; "a fetch tells the last stable offset" that the committed log has there;
- "a fetch names the aborted transactions" of its records, and no others;
- "a fetch begins where it was asked to, and leaves nothing out";
- "a fetch that may wait comes back with records", if there are some, and "a waiting fetch is answered when there are
  records": at once, and not at the end of its wait;
- "an incremental fetch session withholds nothing" that is new;
- "no read replica is preferred without a selector"; with one, `read_replicas.py` judges which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from .....cluster.node.node import Node
from .....isr.replica import Replica
from .....isr.replica_manager import ReplicaManager
from .....isr.results import READ_COMMITTED
from .....wire.api_keys import ApiKey
from .....wire.errors import ErrorCode
from .....wire.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    decode_fetch_request,
    decode_fetch_response,
)
from .....wire.frames import RequestHeader, parse_response_header
from .....wire.records import BatchHeader, iter_headers
from ....specification.transactions.log_replay import LogReplay
from ...kernel.transport import WINDOW_BYTES
from ..invariant_broken import InvariantBroken
from ..partition_invariants import PartitionChecker, PartitionKey
from .answered_requests import AnsweredRequests
from .cleaned_answers import CleanedAnswers
from .fetch_session_model import FetchedKey, FetchSessionModel, FetchSessionModels, rows_in, wanted_in
from .read_replicas import FIRST_VERSION, check_not_preferred, check_preferred
from .replica_states import Around, ReplicaStates, SeenReplica, WaitingFetch, find_replica


@dataclass(slots=True, eq=False)
class _Asked:
    """A fetch that waits for its answer."""

    node_id: int
    version: int
    request: FetchRequest
    wanted: dict[FetchedKey, FetchPartition]
    """What it reads, by its session."""
    has_session: bool
    waiting: WaitingFetch
    is_at_once: bool
    """Whether all of the answer is sent when it is made: nothing else is to be sent, and the network takes so much."""


class FetchAnswers:
    """Watches connections of clients, and judges the answers. `nodes` are those that run."""

    def __init__(
        self,
        partitions: PartitionChecker,
        nodes: Mapping[int, Node],
        states: ReplicaStates,
        now_s: Callable[[], float],
        *,
        may_send_later: bool = False,
    ) -> None:
        """`may_send_later`: answers are sent from files, in events after those in which they were made."""
        self._partitions = partitions
        self._nodes = nodes
        self._states = states
        self._now_s = now_s
        self._may_send_later = may_send_later
        self._sessions = FetchSessionModels()
        self._cleaned = CleanedAnswers(partitions)
        self._replays: dict[PartitionKey, LogReplay] = {}
        self._waiting: dict[int, dict[_Asked, None]] = {}
        self._answered: list[tuple[_Asked, bytes]] = []

    # ---------------------------------------------------------------- connections

    def requests(self, node_id: int) -> AnsweredRequests[object]:
        """What watches a new connection to a broker: its requests when they are read."""
        open_requests: dict[object, None] = {}

        def note(header: RequestHeader, frame: bytes, body_at: int) -> object:
            if header.api_key != ApiKey.FETCH:
                open_requests[other := object()] = None
                return other
            request = decode_fetch_request(header.api_version, frame, body_at)
            session = self._sessions.find(node_id, request)
            wanted = wanted_in(request) if session is None else session.wanted_after(request)
            is_at_once = not (open_requests or self._may_send_later)
            waiting = WaitingFetch(request, self._now_s())
            asked = _Asked(node_id, header.api_version, request, wanted, session is not None, waiting, is_at_once)
            open_requests[asked] = None
            self._waiting.setdefault(node_id, {})[asked] = None
            return asked

        def on_answered(asked: object, frame: bytes) -> None:
            open_requests.pop(asked, None)
            if isinstance(asked, _Asked):
                asked.is_at_once &= len(frame) <= WINDOW_BYTES
                self._waiting.get(node_id, {}).pop(asked, None)
                self._answered.append((asked, frame))

        return AnsweredRequests(list(ApiKey), note, on_answered)

    def forget(self, node_id: int) -> None:
        """The process has ended, perhaps in the midst of an event."""
        self._answered.clear()
        self._sessions.forget(node_id)
        self._waiting.pop(node_id, None)

    # ---------------------------------------------------------------- after every event

    def after_event(self, node_id: int, changed: list[Replica]) -> None:
        """Judge what the node has answered in the event that has just run. Raises `InvariantBroken`."""
        node = self._nodes.get(node_id)
        manager = None if node is None else node.replica_manager
        if manager is None:
            self._answered.clear()
            return
        answered, self._answered = self._answered, []
        for asked, frame in answered:
            _, body_at = parse_response_header(ApiKey.FETCH, asked.version, frame)
            self._judge(manager, asked, decode_fetch_response(asked.version, frame, body_at))
        for asked in self._waiting.get(node_id, ()):
            if asked.waiting.must_look(has_changed=bool(changed)):
                self._look_for_records(manager, asked)

    def _look_for_records(self, manager: ReplicaManager, asked: _Asked) -> None:
        found = None
        for key, wanted in asked.wanted.items():
            replica = find_replica(manager, key)
            state = None if replica is None else self._states.now(asked.node_id, replica)
            if state is not None and wanted.fetch_offset < _readable(state, asked.request):
                found = key
                break
        asked.waiting.on_looked(found, self._now_s(), self._states.events_of(asked.node_id))

    # ---------------------------------------------------------------- judgement

    def _judge(self, manager: ReplicaManager, asked: _Asked, response: FetchResponse) -> None:
        session = self._sessions.on_answered(asked.node_id, asked.request, response, was_known=asked.has_session)
        if response.error_code or (asked.has_session and session is None):
            return
        rows = dict(rows_in(response))
        wanted = asked.wanted if session is None else session.wanted
        size_bytes = sum(len(row.records_in_memory()) for row in rows.values())
        for key, row in rows.items():
            replica = find_replica(manager, key)
            if key in wanted and replica is not None and not self._is_blind(asked.node_id, replica):
                self._judge_row(asked, wanted[key], row, replica)
                if not size_bytes:
                    _check_is_not_empty(asked, wanted[key], row, rows)
        if session is not None:
            for key in [key for key in wanted if key not in rows and asked.is_at_once]:
                self._check_withheld(manager, asked, session, key, size_bytes)
            session.note(response)
        if asked.is_at_once and not response.throttle_ms:
            who = f"{asked.request} at {asked.node_id}"
            asked.waiting.check_wait(self._now_s(), self._states.events_of(asked.node_id), who)

    def _is_blind(self, node_id: int, replica: Replica) -> bool:
        """Whether damage or losses that are accounted for explain more than can be judged here."""
        topic = replica.topic_partition.topic
        return self._partitions.transactions.is_blind or topic in self._partitions.may_lose or replica.offline

    def _judge_row(self, asked: _Asked, wanted: FetchPartition, row: FetchPartitionResponse, replica: Replica) -> None:
        where = f"{replica.topic_partition.topic}-{row.partition} on {asked.node_id}, {wanted}"
        states = self._states.around(asked.node_id, replica)
        if states is not None and asked.is_at_once:
            _check_place(wanted, row, states, where)
        if row.error_code:
            return
        self._check_preferred(asked, wanted, row, replica, where)
        self._check_offsets(row, replica, where)
        if row.diverging_epoch is None and replica.log.config.is_compacted:
            is_stable = asked.request.isolation_level == READ_COMMITTED
            self._cleaned.check((replica.topic_id, row.partition), wanted, row, where, is_stable=is_stable)
        elif row.diverging_epoch is None:
            self._check_records(asked, wanted, row, replica, where)

    def _check_preferred(
        self, asked: _Asked, wanted: FetchPartition, row: FetchPartitionResponse, replica: Replica, where: str
    ) -> None:
        node, rack = self._nodes[asked.node_id], asked.request.rack_id or ""
        states = self._states.around(asked.node_id, replica)
        if row.preferred_read_replica >= 0:
            check_preferred(node, row, replica, rack, where)
        elif states is not None and asked.is_at_once and asked.version >= FIRST_VERSION:
            check_not_preferred(node, wanted, replica, rack, states, int(self._now_s() * 1000), where)

    def _check_offsets(self, row: FetchPartitionResponse, replica: Replica, where: str) -> None:
        key = replica.topic_id, replica.topic_partition.partition
        committed = self._partitions.committed.get(key)
        end_offset = 0 if committed is None else committed.promised_end_offset
        if row.high_watermark > end_offset:
            detail = f"{where}: {row.high_watermark} is told, {end_offset} are committed"
            raise InvariantBroken("a fetch shows nothing above the high watermark", detail)
        if replica.log.config.is_compacted:
            replay, reached = self._partitions.transactions.committed_of(key)[0], end_offset
        else:
            replay = self._replay(key)
            reached = replay.end_offset
        if committed is None or reached < row.high_watermark or committed.end_offset < row.high_watermark:
            return
        first = min(row.log_start_offset, row.high_watermark)
        stable_offset = max(replay.stable_offset(row.high_watermark), first)
        if row.last_stable_offset != stable_offset:
            detail = f"{where}: {row.last_stable_offset} of {row.high_watermark}, it is {stable_offset}"
            raise InvariantBroken("a fetch tells the last stable offset", detail)

    def _replay(self, key: PartitionKey) -> LogReplay:
        """The committed log, replayed as far as it is known."""
        replay, committed = self._replays.setdefault(key, LogReplay()), self._partitions.committed.get(key)
        while committed is not None and (batch := committed.batches.get(replay.end_offset)) is not None:
            _, header = next(iter(iter_headers(batch)))
            replay.follow(header, batch)
        return replay

    def _check_records(
        self, asked: _Asked, wanted: FetchPartition, row: FetchPartitionResponse, replica: Replica, where: str
    ) -> None:
        key = replica.topic_id, replica.topic_partition.partition
        records = memoryview(row.records_in_memory())
        headers: list[BatchHeader] = []
        is_stable = asked.request.isolation_level == READ_COMMITTED
        for position, header in iter_headers(records, allow_partial_tail=True):
            if header.next_offset > row.high_watermark:
                raise InvariantBroken("a fetch shows nothing above the high watermark", f"{where}: {header}, {row}")
            if is_stable and header.next_offset > row.last_stable_offset:
                raise InvariantBroken("a fetch shows nothing above the last stable offset", f"{where}: {header}")
            self._partitions.on_consumed(
                key, header.base_offset, bytes(records[position : position + header.size_bytes])
            )
            headers.append(header)
        if not headers:
            return
        begins = headers[0].base_offset <= wanted.fetch_offset < headers[0].next_offset
        if not begins or any(one.next_offset != following.base_offset for one, following in pairwise(headers)):
            offsets = [(one.base_offset, one.next_offset) for one in headers]
            raise InvariantBroken("a fetch begins where it was asked to, and leaves nothing out", f"{where}: {offsets}")
        if is_stable:
            self._check_aborted(wanted, row, key, headers[-1].next_offset, where)

    def _check_aborted(
        self, wanted: FetchPartition, row: FetchPartitionResponse, key: PartitionKey, end_offset: int, where: str
    ) -> None:
        replay = self._replay(key)
        if replay.end_offset < end_offset:
            return
        aborted = [one for one in replay.ended if not one.is_commit]
        needed = [
            (one.producer_id, one.first_offset)
            for one in aborted
            if one.first_offset < end_offset and one.marker_offset >= wanted.fetch_offset
        ]
        named = [tuple(one) for one in row.aborted_transactions or ()]
        missing = [one for one in needed if one not in named]
        strange = [one for one in named if one not in [(one.producer_id, one.first_offset) for one in aborted]]
        if missing or strange:
            detail = f"{where}: {named} up to {end_offset}; missing {missing}, not aborted {strange}"
            raise InvariantBroken("a fetch names the aborted transactions", detail)

    def _check_withheld(
        self, manager: ReplicaManager, asked: _Asked, session: FetchSessionModel, key: FetchedKey, size_bytes: int
    ) -> None:
        """A partition of the session is not in the answer: there is nothing to tell of it."""
        replica, wanted = find_replica(manager, key), session.wanted[key]
        states = None if replica is None or replica.offline else self._states.around(asked.node_id, replica)
        if replica is None or states is None or self._is_blind(asked.node_id, replica):
            return
        before, now = states
        where = f"{key} on {asked.node_id}, epoch {asked.request.session_epoch} of session {asked.request.session_id}"
        told = session.told.get(key)
        is_known = (
            told is not None
            and before.high_watermark <= told[0] <= now.high_watermark
            and before.start_offset <= told[1] <= now.start_offset
            and (wanted.current_leader_epoch < 0 or before.epoch <= wanted.current_leader_epoch <= now.epoch)
        )
        if not is_known:
            detail = f"{where}: {told} was told, it is {now}, {wanted}"
            raise InvariantBroken("an incremental fetch session withholds nothing", detail)
        readable = min(_readable(before, asked.request), _readable(now, asked.request))
        committed = self._partitions.committed.get((replica.topic_id, key[1]))
        batch = None if committed is None else committed.batches.get(wanted.fetch_offset)
        if batch is None or wanted.fetch_offset >= readable or not asked.request.max_wait_ms:
            return
        if size_bytes + len(batch) <= min(asked.request.max_bytes, wanted.max_bytes):
            detail = f"{where}: {wanted.fetch_offset} of {readable} is not there"
            raise InvariantBroken("an incremental fetch session withholds nothing", detail)


def _readable(state: SeenReplica, request: FetchRequest) -> int:
    return state.stable_offset if request.isolation_level == READ_COMMITTED else state.high_watermark


def _check_place(wanted: FetchPartition, row: FetchPartitionResponse, states: Around, where: str) -> None:
    """Judge the epoch and the offset that were asked for by the states of the replica around the event."""
    before, now = states
    least, most = min(before.start_offset, now.start_offset), max(before.end_offset, now.end_offset)
    is_within = now.start_offset <= wanted.fetch_offset <= min(before.end_offset, now.end_offset)
    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and wanted.last_fetched_epoch < 0 and is_within:
        detail = f"{where}: the log is from {now.start_offset} to {now.end_offset}"
        raise InvariantBroken("a position is out of range only outside of the log", detail)
    if row.error_code:
        return
    epoch = wanted.current_leader_epoch
    if epoch >= 0 and not before.epoch <= epoch <= now.epoch:
        raise InvariantBroken("a fetch is answered in the leader epoch that it names", f"{where}: {now}")
    if not least <= wanted.fetch_offset <= most:
        detail = f"{where}: the log is from {least} to {most}, and it is answered"
        raise InvariantBroken("a position is out of range only outside of the log", detail)


def _check_is_not_empty(
    asked: _Asked, wanted: FetchPartition, row: FetchPartitionResponse, rows: dict[FetchedKey, FetchPartitionResponse]
) -> None:
    """The answer has no records. A replica that is in error, or is not to be read from, is told at once."""
    is_committed = asked.request.isolation_level == READ_COMMITTED
    readable = row.last_stable_offset if is_committed else row.high_watermark
    is_news = any(
        one.error_code or one.diverging_epoch is not None or one.preferred_read_replica >= 0 for one in rows.values()
    )
    if asked.request.max_wait_ms and not is_news and wanted.fetch_offset < readable and wanted.max_bytes:
        detail = f"{asked.request} at {asked.node_id}: partition {row.partition}, {wanted.fetch_offset} of {readable}"
        raise InvariantBroken("a fetch that may wait comes back with records", detail)
