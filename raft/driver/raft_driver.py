"""The asyncio shell around `Quorum`: carries out its effects, in their order, on disk, network and clock.

Every event runs through `_handle`: the quorum decides, the epoch and the vote are made durable, and only then requests
and answers leave. A node whose disk fails leaves the quorum until it is restarted. A failed fsync is never repeated,
because the kernel may have dropped the pages that it could not write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ...log.config import MAX_INT32, MAX_INT64, LogConfig
from ...log.errors import NoSpaceError, StorageError
from ...log.partition_log import PartitionLog
from ...runtime.invariants import InvariantViolation, sometimes
from ...runtime.log_lines import log_event
from ...runtime.loggers import STATE_CHANGE
from ...runtime.loop import TaskSet
from ...runtime.ports import Runtime
from ...wire.api_keys import ApiKey
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.fetch import FetchRequest, FetchResponse
from ..messages.describe_quorum import describe_quorum_fields
from ..messages.messages import (
    BeginQuorumEpoch,
    ChangeReply,
    EndQuorumEpoch,
    EpochReply,
    FetchReply,
    Outgoing,
    Vote,
    VoteReply,
)
from ..messages.voter_messages import CHANGE_APIS, change_reply_fields, parse_change
from ..messages.wire_messages import (
    election_reply_fields,
    fetch_response,
    fetch_snapshot_fields,
    parse_fetch,
    parse_fetch_snapshot,
    parse_request,
    refused_fetch_response,
)
from ..quorum.config import RaftConfig
from ..quorum.effects import Effects, FailureKind
from ..quorum.quorum import Quorum
from ..quorum.quorum_state import QuorumState
from ..replication.partition_raft_log import PartitionRaftLog
from ..replication.spare_space import SpareSpace
from ..snapshots.snapshot_writer import SnapshotContents, write_snapshot
from ..types import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID, LeaderAndEpoch, RaftListener
from ..voters.voter_set import VoterEndpoint, VoterSet
from .commit_publisher import CommitPublisher
from .log_end_checkpoint import LogEndCheckpoint
from .mistaken_peers import MistakenPeers
from .network_channel import Connect, NetworkChannel, connector
from .quorum_state_store import QuorumStateStore

T = TypeVar("T")

_DELETION_WAIT_MAX_S = 24 * 60 * 60.0
"""The longest time between two searches for old snapshots, as the wall clock may jump."""
_SPARE_AGAIN_S = 10.0
"""How often it is tried to have spare space again."""

_logger = logging.getLogger(__name__)
_state_changes = logging.getLogger(STATE_CHANGE)


class QuorumFailedError(Exception):
    """This node has left the quorum after a disk failure or a broken invariant; a restart may help."""


def open_metadata_log(runtime: Runtime, log_dir: str) -> PartitionLog:
    """Open or make `log_dir`/__cluster_metadata-0, and check all of it. Raises `StorageError`.

    The directory's name is durable on return. Otherwise a loss of power could remove it with the vote in it.
    """
    config = LogConfig(segment_ms=MAX_INT64, max_message_bytes=MAX_INT32, message_timestamp_after_max_ms=MAX_INT64)
    directory = metadata_log_dir(log_dir)
    log = PartitionLog.open(runtime, directory, config, has_gaps=False)
    try:
        runtime.disk.fsync_dir(log_dir)
    except OSError as error:
        raise StorageError(f"{directory} cannot be made durable: {error}") from error
    if log.topic_id is None:
        log.set_topic_id(METADATA_TOPIC_ID)
    return log


def metadata_log_dir(log_dir: str) -> str:
    """The directory in `log_dir` that holds the metadata partition and `quorum-state`."""
    return f"{log_dir}/{METADATA_TOPIC}-{METADATA_PARTITION}"


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


class RaftDriver:
    """One node's running part in the quorum. It is made and used on the event loop.

    It owns `log` and closes it in `stop`. `failure` is done when the node had to leave the quorum; its result is the
    reason. The constructor raises `StorageError`, `OSError` or `QuorumStateError` when the state cannot be read.
    """

    def __init__(
        self,
        config: RaftConfig,
        runtime: Runtime,
        log: PartitionLog,
        state_dir: str,
        listener: RaftListener,
        connect: Connect | None = None,
    ) -> None:
        self.config = config
        self._loop = asyncio.get_running_loop()
        self._clock = runtime.clock
        self._store = QuorumStateStore(runtime.disk, state_dir)
        self._spare = SpareSpace(runtime.disk, state_dir.rpartition("/")[0], config.spare_bytes)
        self._spare.hold()
        self._spare_timer: asyncio.TimerHandle | None = None
        self._log = PartitionRaftLog(log, runtime, self._spare)
        election_state = self._store.read()
        self.log_end = LogEndCheckpoint(runtime.disk, state_dir) if config.can_vote else None
        """Where a voter notes how far its log reaches; None for an observer."""
        if self.log_end is not None:
            self.log_end.check(election_state.epoch, self._log.end_offset)
        self._quorum = Quorum(config, self._log, election_state, runtime.rng)
        self._publisher = CommitPublisher(self._quorum.state, self._log, listener)
        self._peers = NetworkChannel(config, connect or connector(config))
        self._mistaken_peers = MistakenPeers(config.cluster_id)
        self._tasks = TaskSet()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._deletion_timer: asyncio.TimerHandle | None = None
        self._now_ms = 0
        self._fetches: dict[int, asyncio.Future[FetchReply]] = {}
        self._changes: dict[int, asyncio.Future[ChangeReply]] = {}
        self._last_token = 0
        self._publish_is_due = False
        self._completion_is_due = False
        self._is_running = False
        self._logged_role = ""
        self._is_snapshotting = False
        self._resignation: asyncio.Future[Any] | None = None
        self.failure: asyncio.Future[Any] = self._loop.create_future()

    # ---- start and stop ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take part. The server must listen already, as other nodes answer at once."""
        self._is_running = True
        self._handle(self._quorum.start)
        self._delete_by_timer()

    async def stop(self) -> None:
        """Resign if this node leads, then leave the quorum and close the log."""
        if self.is_leader:
            self._resignation = self._loop.create_future()
            self._handle(self._quorum.resign)
            grace_s = self.config.timing.shutdown_grace_ms / 1000
            await asyncio.wait([self._resignation, self.failure], timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        self._leave()
        self._peers.close()
        await self._tasks.cancel_all()
        try:
            self._log.close(clean=not self.failure.done())
            if self.log_end is not None and not self.failure.done():
                self.log_end.note_stop(self.epoch, self._durably_committed(), self._log.end_offset)
        except (StorageError, OSError) as error:
            _logger.error("the metadata log is left to recovery: %s", error)

    def _leave(self) -> None:
        self._is_running = False
        for timer in (self._timer, self._spare_timer, self._deletion_timer):
            if timer is not None:
                timer.cancel()
        fetches, self._fetches = self._fetches, {}
        for fetch in fetches.values():
            _resolve(fetch, FetchReply(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=None, epoch=self.epoch))
        changes, self._changes = self._changes, {}
        for change in changes.values():
            _resolve(change, self._refused_change(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the node is stopping"))

    def _fail(self, reason: BaseException) -> None:
        if self.failure.done():
            return
        _logger.critical("node %d leaves the metadata quorum: %r", self.config.node_id, reason)
        self.failure.set_result(reason)
        sometimes(
            isinstance(reason, (OSError, StorageError)), "a node left the metadata quorum because its disk failed"
        )
        self._tell_of_resignation()
        self._leave()
        self._loop.call_soon(self._publisher.publish_no_leader)

    def _tell_of_resignation(self) -> None:
        """Resign as the leader after a disk failure, as far as that needs no writing."""
        try:
            self._quorum.resign(self._time_ms())
        except InvariantViolation:
            return
        effects = self._quorum.take_effects()  # who waits for an answer gets it when this node leaves
        if effects.election_state is None:
            for outgoing in effects.requests:
                self._tasks.spawn(self._exchange(outgoing), name=f"raft to {outgoing.to}")

    # ---- what other layers may ask -----------------------------------------------------------------------------------

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader as this node knows it now; the listener learns of it a little later."""
        if not self._is_running:
            return LeaderAndEpoch(None, self.epoch)
        return self._quorum.state.leader_and_epoch

    @property
    def epoch(self) -> int:
        """The highest epoch that this node knows."""
        return self._quorum.state.epoch

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the quorum."""
        return self._is_running and self._quorum.state.is_leader

    @property
    def high_watermark(self) -> int:
        """The offset below which all is committed, as far as this node knows; 0 at first."""
        return self._quorum.state.high_watermark.offset or 0

    @property
    def is_high_watermark_current(self) -> bool:
        """Whether `high_watermark` was learned since the start. Until then it is the end of the latest snapshot."""
        return self._quorum.state.high_watermark.is_current

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record in this node's log."""
        return self._log.end_offset

    @property
    def quorum_state(self) -> QuorumState:
        """The quorum's state, to be read only: by metrics and by the simulator's checks."""
        return self._quorum.state

    def leader_endpoint(self) -> VoterEndpoint | None:
        """Where the leader's controller listener is; None while it is unknown."""
        return self._quorum.state.leader_endpoint if self._is_running else None

    @property
    def voters(self) -> VoterSet:
        """The voters that count now."""
        return self._quorum.state.voters

    def voter_endpoints(self) -> dict[int, VoterEndpoint]:
        """Where the voters' controller listeners are, by node id."""
        found = [(voter.key.id, voter.endpoint(self.config.listener_name)) for voter in self.voters.voters]
        return {voter_id: endpoint for voter_id, endpoint in found if endpoint is not None}

    @property
    def kraft_version(self) -> int:
        """The finalized `kraft.version`, by the committed records that this node knows."""
        return self._log.voters.version_at(self.high_watermark)

    @property
    def snapshot_end_offset(self) -> int | None:
        """The end offset of the latest snapshot on this node's disk."""
        latest = self._log.latest_snapshot
        return None if latest is None else latest.end_offset

    # ---- appending ---------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[bytes], epoch: int) -> int:
        """Append one batch as the leader of `epoch`; returns its last offset.

        All that is appended in one loop iteration goes to the followers and to the disk together. Raises
        `NotLeaderError`, `QuorumFailedError`, and `ProtocolError` for a batch that the log refuses.
        """
        offset = self._handle(lambda _: self._quorum.append(records, epoch))
        if not self._completion_is_due:
            self._completion_is_due = True
            self._loop.call_soon(self._complete_delayed_fetches)
        return offset

    def upgrade_kraft_version(self, epoch: int, level: int, validate_only: bool) -> None:
        """Finalize `kraft.version` as the leader of `epoch`; the record is then the last of the log.

        `validate_only` checks only whether it can be done. Raises `NotLeaderError`, `QuorumFailedError`, and
        `ProtocolError` with the reason why it cannot.
        """
        self._handle(lambda _: self._quorum.upgrade_kraft_version(epoch, level, validate_only=validate_only))
        self._handle(self._quorum.complete_delayed_fetches)

    def _complete_delayed_fetches(self) -> None:
        self._completion_is_due = False
        self._handle_quietly(self._quorum.complete_delayed_fetches)

    # ---- snapshots ---------------------------------------------------------------------------------------------------

    def create_snapshot(self, contents: SnapshotContents) -> bool:
        """Write a snapshot of committed state in the background, then delete what it replaces.

        Returns False while another one is written. A snapshot that cannot be written is logged, and changes nothing.
        """
        if self._is_snapshotting or not self._is_running:
            sometimes(self._is_snapshotting, "a metadata snapshot was due while another one was being written")
            return False
        self._is_snapshotting = True
        contents = replace(contents, controls=tuple(self._log.voters.snapshot_records(contents.id.end_offset)))
        self._tasks.spawn(self._create_snapshot(contents), name=f"snapshot {contents.id.end_offset}")
        return True

    async def _create_snapshot(self, contents: SnapshotContents) -> None:
        try:
            await write_snapshot(self._log.snapshots, contents)
            if self._is_running:
                self._log.add_snapshot(contents.id)
                self._delete_old_snapshots()
        except StorageError as error:
            self._fail(error)
        except OSError as error:
            sometimes(True, "a metadata snapshot could not be written")
            _logger.error("the metadata snapshot at offset %d was not written: %s", contents.id.end_offset, error)
        finally:
            self._is_snapshotting = False

    def _delete_old_snapshots(self) -> None:
        """Delete old snapshots and the log before them, now and when the next one is too old."""
        if self._deletion_timer is not None:
            self._deletion_timer.cancel()
        now_ms = self._clock.wall_ms()
        due_ms = self._log.clean(self.config.snapshot_retention, now_ms)
        if due_ms is not None:
            wait_s = min((due_ms - now_ms) / 1000, _DELETION_WAIT_MAX_S)
            self._deletion_timer = self._loop.call_later(wait_s, self._delete_by_timer)

    def _delete_by_timer(self) -> None:
        try:
            self._delete_old_snapshots()
        except StorageError as error:
            self._fail(error)
        except OSError as error:
            _logger.error("old metadata snapshots were not deleted: %s", error)

    # ---- requests of other nodes -------------------------------------------------------------------------------------

    async def handle_request(self, api_key: int, version: int, request: Any) -> dict[str, Any]:
        """Handle a decoded request of a quorum API other than Fetch; returns the response's schema fields."""
        if not self._is_running:
            return {"error_code": int(self._error_when_stopped()), "topics": []}
        if api_key in CHANGE_APIS:
            return await self._change_voters(api_key, request)
        if api_key == ApiKey.DESCRIBE_QUORUM:
            return describe_quorum_fields(self._quorum.state, request, self._time_ms(), self._clock.wall_ms())
        try:
            if api_key == ApiKey.FETCH_SNAPSHOT:
                part = parse_fetch_snapshot(request)
                return fetch_snapshot_fields(
                    part, self._handle(lambda now_ms: self._quorum.on_fetch_snapshot(part, now_ms))
                )
            message = parse_request(api_key, request, self.config.listener_name)
            reply = self._handle(lambda now_ms: self._on_election_request(message, now_ms))
        except ProtocolError as error:
            return {"error_code": int(error.code), "error_message": error.message, "topics": []}
        except QuorumFailedError:
            return {"error_code": int(ErrorCode.KAFKA_STORAGE_ERROR), "topics": []}
        return election_reply_fields(reply)

    async def _change_voters(self, api_key: int, request: Any) -> dict[str, Any]:
        try:
            change = parse_change(api_key, request)
            token, future = self._wait_for_answer(self._changes)
            self._handle(lambda now_ms: self._quorum.on_voter_change(token, change, now_ms))
            reply = await future
        except ProtocolError as error:
            reply = self._refused_change(error.code, error.message)
        except QuorumFailedError:
            reply = self._refused_change(ErrorCode.KAFKA_STORAGE_ERROR, None)
        return change_reply_fields(api_key, reply)

    def _refused_change(self, error: ErrorCode, message: str | None) -> ChangeReply:
        return ChangeReply(error=error, leader_id=None, epoch=self.epoch, message=message)

    def _wait_for_answer(self, waiting: dict[int, asyncio.Future[T]]) -> tuple[int, asyncio.Future[T]]:
        self._last_token += 1
        future = waiting[self._last_token] = self._loop.create_future()
        return self._last_token, future

    def _on_election_request(
        self, message: Vote | BeginQuorumEpoch | EndQuorumEpoch, now_ms: int
    ) -> VoteReply | EpochReply:
        if isinstance(message, Vote):
            return self._quorum.on_vote(message, now_ms)
        if isinstance(message, BeginQuorumEpoch):
            return self._quorum.on_begin_quorum_epoch(message, now_ms)
        return self._quorum.on_end_quorum_epoch(message, now_ms)

    async def handle_fetch(self, version: int, request: FetchRequest) -> FetchResponse:
        """Handle a fetch of the metadata partition; it waits for records up to the request's `max_wait_ms`."""
        if not self._is_running:
            return refused_fetch_response(request, self._error_when_stopped())
        try:
            fetch = parse_fetch(request)
            token, future = self._wait_for_answer(self._fetches)
            self._handle(lambda now_ms: self._quorum.on_fetch(token, fetch, now_ms))
            return fetch_response(await future)
        except ProtocolError as error:
            return refused_fetch_response(request, error.code)
        except QuorumFailedError:
            return refused_fetch_response(request, ErrorCode.KAFKA_STORAGE_ERROR)

    def _error_when_stopped(self) -> ErrorCode:
        return ErrorCode.KAFKA_STORAGE_ERROR if self.failure.done() else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # ---- events and their effects ------------------------------------------------------------------------------------

    def _time_ms(self) -> int:
        self._now_ms = max(self._now_ms, int(self._loop.time() * 1000))
        return self._now_ms

    def _handle(self, event: Callable[[int], T]) -> T:
        """Let the quorum decide on an event, and carry out the effects.

        Raises `QuorumFailedError` when the disk failed or an invariant is broken, now or before.
        """
        if not self._is_running:
            raise QuorumFailedError(f"node {self.config.node_id} is not in the metadata quorum")
        try:
            result = event(self._time_ms())
            self._carry_out(self._quorum.take_effects())
        except (OSError, StorageError, InvariantViolation) as reason:
            self._fail(reason)
            raise QuorumFailedError(f"node {self.config.node_id} left the metadata quorum: {reason}") from reason
        return result

    def _handle_quietly(self, event: Callable[[int], object]) -> None:
        """Handle an event without a caller that waits; a failure was reported by `failure` and in the log."""
        if self._is_running:
            try:
                self._handle(event)
            except QuorumFailedError:
                pass

    def _carry_out(self, effects: Effects) -> None:
        state = effects.election_state
        if state is not None:
            self._spare.retried(lambda: self._store.write(state))
        for outgoing in effects.requests:
            self._tasks.spawn(self._exchange(outgoing), name=f"raft to {outgoing.to}")
        self._answer(effects)
        self._log_role()
        self._log.flush_if_behind(self._on_flushed)
        self._arm_timer()
        if not self._spare.is_held and self._spare_timer is None and self.config.spare_bytes:
            self._spare_timer = self._loop.call_later(_SPARE_AGAIN_S, self._hold_spare)
        if self._publisher.has_news and not self._publish_is_due:
            self._publish_is_due = True
            self._loop.call_soon(self._publish)
        self._check_resignation()

    def _hold_spare(self) -> None:
        self._spare_timer = None
        if not self._spare.hold():
            self._spare_timer = self._loop.call_later(_SPARE_AGAIN_S, self._hold_spare)

    def _log_role(self) -> None:
        role = self._quorum.state.role.kind.value
        if role != self._logged_role:
            before, self._logged_role = self._logged_role, role
            log_event(_state_changes, "quorum-role", role=role, role_before=before or "none", epoch=self.epoch)

    def _answer(self, effects: Effects) -> None:
        for token, reply in effects.fetch_replies:
            _resolve(self._fetches.pop(token), reply)
        for token, answer in effects.change_replies:
            _resolve(self._changes.pop(token), answer)

    async def _exchange(self, outgoing: Outgoing) -> None:
        outcome = await self._peers.exchange(outgoing)
        if isinstance(outcome, FailureKind):
            kind = outcome
            self._handle_quietly(lambda now_ms: self._quorum.on_failure(outgoing, kind, now_ms))
        else:
            reply = outcome
            self._mistaken_peers.look(outgoing, reply)
            self._handle_quietly(lambda now_ms: self._quorum.on_reply(outgoing, reply, now_ms))

    def _on_flushed(self, error: BaseException | None) -> None:
        if not self._is_running:
            return
        if isinstance(error, NoSpaceError) and self._spare.release():
            sometimes(True, "a sync of the metadata log was tried again with the spare space")
            self._log.flush_if_behind(self._on_flushed)
            return
        if error is not None:
            self._fail(error)
            return
        self._handle_quietly(self._quorum.on_flushed)
        if self.log_end is not None:
            self.log_end.note_committed(self.epoch, self._durably_committed())

    def _durably_committed(self) -> int:
        return min(self.high_watermark, self._log.durable_offset)

    def _arm_timer(self) -> None:
        deadline_ms = self._quorum.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._loop.call_at(deadline_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        # The loop may call a little early. The time of the timer counts then, or the timer would be set again at once.
        self._now_ms = max(self._now_ms, self._timer_ms)
        self._handle_quietly(self._quorum.on_timer)

    def _publish(self) -> None:
        self._publish_is_due = False
        if not self._is_running:
            return
        try:
            self._publisher.publish()
        except Exception as reason:
            # A listener that failed on a committed record does not have the state that the log describes.
            self._fail(reason)
            return
        if self._publisher.has_news and not self._publish_is_due:
            self._publish_is_due = True
            self._loop.call_soon(self._publish)

    def _check_resignation(self) -> None:
        waiter = self._resignation
        if waiter is not None and not waiter.done() and not self._quorum.state.role.awaits_successor:
            waiter.set_result(None)
