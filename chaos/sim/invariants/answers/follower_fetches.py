"""What followers ask their leaders for, and what these answer, found in the bytes of the simulated connections.

A leader tells a follower only what is new since its last answer, and looks only at partitions of which it believes that
there is something new (`isr/fetching/dirty_partitions.py`). So what is not in an answer is judged as well as what is:

- "a follower asks for what its log lacks": the session of its request has the leader epoch and the end of each log;
- "a follower has learnt what it was told": the high watermark and the log start offset of former answers;
- "a fetch is answered in the leader epoch that it names", by the leader of it, and "a fetch is refused for a reason";
- "a follower is told what its leader has", and "a fetch tells where two logs part", by the batches of the leader's log;
- "a full fetch is answered for each partition", and "an incremental fetch session withholds nothing" that is new;
- "a waiting fetch is answered when there are records": at once, and not at the end of its wait.

The follower is judged when it sends a request, the leader when it sends the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .....cluster.node.node import Node
from .....isr.fetching import dirty_partitions
from .....isr.replica import Replica
from .....isr.replica_manager import ReplicaManager
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
from .....wire.records import iter_headers
from .....wire.types import EpochEndOffset
from ....specification.log_entry import end_for_epoch
from ....specification.partitions.replica_state import ReplicaLog
from ...kernel.transport import WINDOW_BYTES
from ..invariant_broken import InvariantBroken
from .answered_requests import AnsweredRequests
from .fetch_session_model import FetchedKey, FetchSessionModel, FetchSessionModels, rows_in, wanted_in
from .replica_states import Around, ReplicaStates, SeenReplica, WaitingFetch

_Replicas = Mapping[FetchedKey, Replica]
_INITIAL_EPOCH = 0


@dataclass(slots=True, eq=False)
class _Asked:
    """A fetch of a follower."""

    leader_id: int
    version: int
    request: FetchRequest
    wanted: dict[FetchedKey, FetchPartition]
    """What it reads, by its session."""
    told: dict[FetchedKey, tuple[int, int]]
    """What its session had been told, without what another leader epoch makes void."""
    has_session: bool
    waiting: WaitingFetch

    def __str__(self) -> str:
        request = self.request
        session = f"epoch {request.session_epoch} of session {request.session_id}"
        return f"{request.replica_id} from {self.leader_id}, {session}"


class FollowerFetches:
    """Watches the connections between brokers. `nodes` are those that run.

    `log_of(node_id, replica)` gives the log of a replica as it was observed, None if it is not judged.
    """

    def __init__(
        self,
        nodes: Mapping[int, Node],
        states: ReplicaStates,
        log_of: Callable[[int, Replica], ReplicaLog | None],
        now_s: Callable[[], float],
        *,
        may_send_later: bool = False,
    ) -> None:
        """`may_send_later`: answers are sent from files, in events after those in which they were made."""
        self._nodes = nodes
        self._states = states
        self._log_of = log_of
        self._now_s = now_s
        self._may_send_later = may_send_later
        self._sessions = FetchSessionModels()
        self._waiting: dict[int, dict[_Asked, None]] = {}
        self._on_the_way: dict[bytes, list[FetchRequest]] = {}
        """By their frames, requests that were sent and not read yet: one that is sent again may have the same bytes."""
        self._sent: list[_Asked] = []
        self._answered: list[tuple[_Asked, bytes]] = []

    # ---------------------------------------------------------------- connections

    def requests_sent(self, leader_id: int) -> AnsweredRequests[_Asked]:
        """What watches a new connection to a leader: the requests when their followers send them."""

        def note(header: RequestHeader, frame: bytes, body_at: int) -> None:
            request = decode_fetch_request(header.api_version, frame, body_at)
            if request.replica_id >= 0:
                self._on_the_way.setdefault(frame, []).append(request)
                self._sent.append(self._asked(leader_id, header.api_version, request))

        return AnsweredRequests({ApiKey.FETCH}, note, lambda asked, response: None)

    def requests_read(self, leader_id: int) -> AnsweredRequests[_Asked]:
        """What watches it, too: the requests when they are read, and the answers."""

        def note(header: RequestHeader, frame: bytes, body_at: int) -> _Asked | None:
            on_the_way = self._on_the_way.get(frame)
            if not on_the_way:
                return None
            request = on_the_way.pop()
            if not on_the_way:
                del self._on_the_way[frame]
            asked = self._asked(leader_id, header.api_version, request)
            self._waiting.setdefault(leader_id, {})[asked] = None
            return asked

        def on_answered(asked: _Asked, response: bytes) -> None:
            self._waiting.get(leader_id, {}).pop(asked, None)
            self._answered.append((asked, response))

        return AnsweredRequests({ApiKey.FETCH}, note, on_answered)

    def _asked(self, leader_id: int, version: int, request: FetchRequest) -> _Asked:
        session = self._sessions.find(leader_id, request)
        if session is None:
            wanted, told = wanted_in(request), {}
        else:
            wanted, told = session.wanted_after(request), session.told_after(request)
        return _Asked(
            leader_id, version, request, wanted, told, session is not None, WaitingFetch(request, self._now_s())
        )

    def forget(self, node_id: int) -> None:
        """The process has ended, perhaps in the midst of an event."""
        self._sent.clear()
        self._answered.clear()
        self._sessions.forget(node_id)
        self._waiting.pop(node_id, None)

    # ---------------------------------------------------------------- after every event

    def after_event(self, node_id: int, has_changed: bool) -> None:
        """Judge what the node has asked and answered in the event that has just run. Raises `InvariantBroken`.

        `has_changed`: something has happened to its replicas.
        """
        sent, self._sent = self._sent, []
        answered, self._answered = self._answered, []
        waiting = self._waiting.get(node_id)
        if not (sent or answered or waiting):
            return
        unmet = [one for one in waiting or () if one.waiting.must_look(has_changed=has_changed)]
        node = self._nodes.get(node_id)
        manager = None if node is None else node.replica_manager
        if manager is None or not (sent or answered or unmet):
            return
        replicas: dict[FetchedKey, Replica] = {
            (one.topic_id, key.partition): one for key, one in manager.partitions.items()
        }
        for asked in sent:
            self._judge_request(node_id, replicas, asked)
        for asked, frame in answered:
            _, body_at = parse_response_header(ApiKey.FETCH, asked.version, frame)
            is_at_once = not self._may_send_later and len(frame) <= WINDOW_BYTES
            response = decode_fetch_response(asked.version, frame, body_at)
            self._judge(manager, replicas, asked, response, is_at_once=is_at_once)
        for asked in unmet:
            self._look_for_records(replicas, asked)

    def _look_for_records(self, replicas: _Replicas, asked: _Asked) -> None:
        found = None
        for key, wanted in asked.wanted.items():
            replica = replicas.get(key)
            state = None if replica is None else self._states.now(asked.leader_id, replica)
            if state is not None and _leads(state, asked, wanted) and wanted.fetch_offset < state.end_offset:
                found = key
                break
        asked.waiting.on_looked(found, self._now_s(), self._states.events_of(asked.leader_id))

    # ---------------------------------------------------------------- the follower's side

    def _judge_request(self, node_id: int, replicas: _Replicas, asked: _Asked) -> None:
        for key, wanted in asked.wanted.items():
            replica = replicas.get(key)
            around = None if replica is None or replica.offline else self._states.around(node_id, replica)
            if replica is None or around is None or self._log_of(node_id, replica) is None:
                continue
            if not any(_follows(state, asked, wanted) for state in around):
                detail = f"{replica.topic_partition}, {asked}: {wanted}, it is {around[1]}"
                raise InvariantBroken("a follower asks for what its log lacks", detail)
            told, now = asked.told.get(key), around[1]
            if told is None:
                continue
            high_watermark = min(told[0], now.end_offset)
            if now.high_watermark < high_watermark or now.start_offset < min(told[1], high_watermark):
                detail = f"{replica.topic_partition}, {asked}: {told} was told, it is {now}"
                raise InvariantBroken("a follower has learnt what it was told", detail)

    # ---------------------------------------------------------------- the leader's side

    def _judge(
        self,
        manager: ReplicaManager,
        replicas: _Replicas,
        asked: _Asked,
        response: FetchResponse,
        *,
        is_at_once: bool,
    ) -> None:
        """`is_at_once`: all of it was sent when it was made."""
        session = self._sessions.on_answered(asked.leader_id, asked.request, response, was_known=asked.has_session)
        if response.error_code or (asked.has_session and session is None):
            return
        rows = dict(rows_in(response))
        wanted = asked.wanted if session is None else session.wanted
        missing = [key for key in wanted if key not in rows]
        if asked.request.session_epoch <= _INITIAL_EPOCH and missing:
            raise InvariantBroken("a full fetch is answered for each partition", f"{asked}: not for {missing}")
        if is_at_once:
            for key, row in rows.items():
                if key in wanted:
                    self._judge_row(replicas.get(key), asked, wanted[key], row)
            if session is not None and len(wanted) <= dirty_partitions.LOOKED_AT_ONCE:
                size_bytes = sum(len(row.records_in_memory()) for row in rows.values())
                for key in missing:
                    self._check_withheld(manager, replicas.get(key), asked, session, key, size_bytes)
            if manager.throttles.leader.is_idle:
                asked.waiting.check_wait(self._now_s(), self._states.events_of(asked.leader_id), str(asked))
        if session is not None:
            session.note(response)

    def _around(self, replica: Replica | None, asked: _Asked) -> Around | None:
        """The leader's replica around this time, if it is judged."""
        if replica is None or replica.offline or self._log_of(asked.leader_id, replica) is None:
            return None
        return self._states.around(asked.leader_id, replica)

    def _judge_row(
        self, replica: Replica | None, asked: _Asked, wanted: FetchPartition, row: FetchPartitionResponse
    ) -> None:
        around = self._around(replica, asked)
        if replica is None or around is None:
            return
        before, now = around
        where = f"{replica.topic_partition}, {asked}, {wanted}"
        if row.error_code:
            self._check_refusal(replica, asked, wanted, row.error_code, around, where)
            return
        if not any(_leads(state, asked, wanted) for state in around):
            raise InvariantBroken("a fetch is answered in the leader epoch that it names", f"{where}: {now}")
        is_high_watermark = before.high_watermark <= row.high_watermark <= now.high_watermark
        if not is_high_watermark or not before.start_offset <= row.log_start_offset <= now.start_offset:
            told = row.high_watermark, row.log_start_offset
            raise InvariantBroken("a follower is told what its leader has", f"{where}: {told}, it is {now}")
        log = self._log_of(asked.leader_id, replica)
        if log is not None and all(_leads(state, asked, wanted) for state in around):
            check_divergence(log, wanted, row.diverging_epoch, now, where)

    def _check_refusal(
        self,
        replica: Replica,
        asked: _Asked,
        wanted: FetchPartition,
        error_code: int,
        around: Around,
        where: str,
    ) -> None:
        before, now = around
        leader, request = replica.partition.leader, asked.request
        is_stranger = leader is None or request.replica_id not in leader.followers or before != now
        known_epoch = self._broker_epoch(asked.leader_id, request.replica_id)
        reasons = {
            ErrorCode.FENCED_LEADER_EPOCH: wanted.current_leader_epoch < now.epoch,
            ErrorCode.UNKNOWN_LEADER_EPOCH: wanted.current_leader_epoch > before.epoch or is_stranger,
            ErrorCode.NOT_LEADER_OR_FOLLOWER: not before.leader_id == now.leader_id == asked.leader_id
            or known_epoch > request.replica_epoch,
            ErrorCode.OFFSET_OUT_OF_RANGE: not now.start_offset <= wanted.fetch_offset <= before.end_offset
            or wanted.last_fetched_epoch > now.epoch,
        }
        if not reasons.get(ErrorCode(error_code), True):
            detail = f"{where}: {ErrorCode(error_code).name}, it is {now}"
            raise InvariantBroken("a fetch is refused for a reason", detail)

    def _broker_epoch(self, node_id: int, broker_id: int) -> int:
        """The epoch of a broker as a node knows it."""
        node = self._nodes.get(node_id)
        broker = None if node is None or node.loader is None else node.loader.image.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    def _check_withheld(
        self,
        manager: ReplicaManager,
        replica: Replica | None,
        asked: _Asked,
        session: FetchSessionModel,
        key: FetchedKey,
        size_bytes: int,
    ) -> None:
        """A partition of the session is not in the answer: there is nothing to tell of it."""
        around = self._around(replica, asked)
        if replica is None or around is None:
            return
        (before, now), wanted, told = around, session.wanted[key], session.told.get(key)
        where = f"{replica.topic_partition}, {asked}"
        is_known = (
            told is not None
            and before.high_watermark <= told[0] <= now.high_watermark
            and before.start_offset <= told[1] <= now.start_offset
            and any(_leads(state, asked, wanted) for state in around)
        )
        if not is_known:
            detail = f"{where}: {told} was told, it is {now}, {wanted}"
            raise InvariantBroken("an incremental fetch session withholds nothing", detail)
        end_offset = min(before.end_offset, now.end_offset)
        is_throttled = not manager.throttles.leader.is_idle
        if wanted.fetch_offset >= end_offset or not asked.request.max_wait_ms or is_throttled:
            return
        batch = replica.log.read(wanted.fetch_offset, 1, end_offset=end_offset)
        needed = next((header.size_bytes for _, header in iter_headers(memoryview(batch))), 0)
        if size_bytes + needed <= min(asked.request.max_bytes, wanted.max_bytes):
            detail = f"{where}: {wanted.fetch_offset} of {end_offset} is not there"
            raise InvariantBroken("an incremental fetch session withholds nothing", detail)


def _leads(state: SeenReplica, asked: _Asked, wanted: FetchPartition) -> bool:
    return state.leader_id == asked.leader_id and state.epoch == wanted.current_leader_epoch


def _follows(state: SeenReplica, asked: _Asked, wanted: FetchPartition) -> bool:
    return _leads(state, asked, wanted) and state.end_offset == wanted.fetch_offset


def check_divergence(
    log: ReplicaLog, wanted: FetchPartition, told: EpochEndOffset | None, leader: SeenReplica, where: str
) -> None:
    """Compare what is told of the two logs with the batches of the leader's, if it still has that part of them."""
    offset, epoch = wanted.fetch_offset, wanted.last_fetched_epoch
    end = end_for_epoch(log, max(epoch, 0))
    if epoch < 0 or not end.end_offset or end.end_offset <= leader.start_offset:
        return
    is_prefix = end.epoch == epoch and offset <= end.end_offset
    needed = None if is_prefix else (end.epoch, end.end_offset)
    if needed != (None if told is None else (told.epoch, told.end_offset)):
        detail = f"{where}: {told} is told, epoch {end.epoch} ends at {end.end_offset} in {log}"
        raise InvariantBroken("a fetch tells where two logs part", detail)
