"""Mends damaged logs from other replicas, and keeps a damaged replica out of the ISR meanwhile.

While enough other replicas are in sync, the controller is told that the replica is in a log directory that does not
work (AssignReplicasToDirs, KIP-858). It then leaves the ISR, another replica leads, and it is not elected, until its
true directory is told again. If the ISR would become too small for acks=all, or would be empty, the replica stays in
it: what is sound of its data is still needed.

The damaged segment is fetched from another replica, the leader first, as a consumer would: only committed batches come,
and each is checked. It replaces the damaged one as a whole (`log/recovery/segment_mending.py`). A log without another
sound replica stays as it is, and is tried again when the scrubber finds it again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shlex
from collections.abc import Awaitable, Callable
from uuid import UUID

from ...log.manager.log_manager import LogManager
from ...log.partition_log import PartitionLog
from ...log.recovery.segment_mending import MendingGivenUpError, SegmentMending
from ...log.segment.batch_scan import Damage
from ...runtime.incremental_work import run_in_steps
from ...runtime.invariants import sometimes
from ...runtime.loop import TaskSet
from ...runtime.ports import Disk
from ...wire.api_keys import ApiKey
from ...wire.errors import ProtocolError, WireFormatError, error_name
from ...wire.fetch import FetchPartition, FetchRequest, FetchTopic, decode_fetch_response, encode_fetch_request
from ...wire.types import TopicPartition
from ..hosted_partitions import HostedPartitions
from ..ports import FetchConnection
from ..replica import Replica

_logger = logging.getLogger(__name__)
_FETCH_VERSION = 17
_FETCH_BYTES = 1024 * 1024
_FETCH_WAIT_MS = 100
_EMPTY_ANSWERS_MAX = 50
_ANSWER_LIMIT_S = 30.0
_LEAVING_LIMIT_S = 10.0
_LOOK_AGAIN_S = 0.02
_SEGMENTS_MAX = 1_000


class LogMending:
    """Mends one log at a time. `set_suspended` tells where a replica is: in no working directory (an id), or as it is.

    Made and used on the running loop.
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        logs: LogManager,
        connect: Callable[[int], Awaitable[FetchConnection]],
        disk: Disk,
        rng: random.Random,
        set_suspended: Callable[[Replica, UUID | None], None],
    ) -> None:
        self._hosted = hosted
        self._logs = logs
        self._connect = connect
        self._disk = disk
        self._rng = rng
        self._set_suspended = set_suspended
        self._damaged: dict[TopicPartition, Damage] = {}
        self._under_way: TopicPartition | None = None
        self._in_vain: dict[TopicPartition, Damage] = {}
        self._tasks = TaskSet()
        self._is_running = False
        self._is_stopped = False

    def begin(self, topic_partition: TopicPartition, damage: Damage) -> None:
        """Mend the log of this replica, now or after others."""
        self._damaged[topic_partition] = damage
        if not self._is_running and not self._is_stopped:
            self._is_running = True
            self._tasks.spawn(self._run(), name="mending of logs")

    def is_under_way(self, topic_partition: TopicPartition) -> bool:
        """Whether the log of this replica is being mended, or will be."""
        return topic_partition in self._damaged or topic_partition == self._under_way

    def was_in_vain(self, topic_partition: TopicPartition, damage: Damage) -> bool:
        """Whether the last attempt to mend the log found no replica that could mend this damage."""
        former = self._in_vain.get(topic_partition)
        return former is not None and former[:2] == damage[:2]

    async def stop(self) -> None:
        """Stop mending; what is damaged is found again after the next start."""
        self._is_stopped = True
        await self._tasks.cancel_all()

    async def _run(self) -> None:
        try:
            while self._damaged:
                topic_partition = next(iter(self._damaged))
                damage = self._damaged.pop(topic_partition)
                replica = self._hosted.replicas.get(topic_partition)
                self._under_way = topic_partition
                self._in_vain.pop(topic_partition, None)
                if replica is not None and not replica.offline:
                    await self._mend(replica, damage)
        finally:
            self._is_running = False
            self._under_way = None

    async def _mend(self, replica: Replica, damage: Damage) -> None:
        log = replica.log
        is_suspended = self._can_be_spared(replica)
        if is_suspended:
            await self._leave(replica)
        try:
            for _ in range(_SEGMENTS_MAX):
                if not await self._mend_segment(replica, log, damage.segment_base_offset):
                    sometimes(True, "no replica could mend a damaged segment")
                    self._in_vain[replica.topic_partition] = damage
                    return
                scrubber = self._logs.scrubber
                mended_at = damage.segment_base_offset
                found = None if scrubber is None else await scrubber.check(replica.topic_partition, mended_at=mended_at)
                self._damaged.pop(replica.topic_partition, None)  # the check has reported it, and it is dealt with here
                if found is None or replica.log is not log:
                    return
                damage = found
        finally:
            if is_suspended:
                self._set_suspended(replica, None)

    # ---------------------------------------------------------------- out of the ISR

    def _can_be_spared(self, replica: Replica) -> bool:
        """Whether enough other replicas are in sync, and one of them may lead."""
        registration = self._hosted.registration(replica.topic_partition)
        if registration is None:
            return False
        image, local_id = self._hosted.image, self._hosted.local_id
        others = [member for member in registration.isr if member != local_id and image.may_lead(registration, member)]
        return len(others) >= max(1, replica.partition.config.min_isr)

    async def _leave(self, replica: Replica) -> None:
        """Return when the metadata says that this replica is neither leader nor in the ISR, or after some seconds."""
        self._set_suspended(replica, UUID(int=self._rng.getrandbits(128), version=4))
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + _LEAVING_LIMIT_S
        while loop.time() < give_up_s:
            registration = self._hosted.registration(replica.topic_partition)
            if registration is None or self._hosted.local_id not in (*registration.isr, registration.leader):
                return
            await asyncio.sleep(_LOOK_AGAIN_S)

    # ---------------------------------------------------------------- one segment

    async def _mend_segment(self, replica: Replica, log: PartitionLog, base_offset: int) -> bool:
        """Replace one segment by what another replica has; whether that was done."""
        for broker_id in self._sources(replica):
            try:
                await self._copy_from(broker_id, replica, log, base_offset)
            except (OSError, TimeoutError, ProtocolError, WireFormatError, MendingGivenUpError) as error:
                where = (replica.topic_partition, base_offset, broker_id)
                sometimes(True, "a damaged segment could not be mended from one of the replicas")
                _logger.warning("%s: the segment at %d could not be mended from broker %d: %s", *where, error)
            else:
                where = (replica.topic_partition, base_offset, broker_id)
                sometimes(True, "a damaged segment was mended from another replica")
                _logger.warning("%s: the segment at %d is mended from broker %d", *where)
                return True
        _logger.error(
            "%s stays damaged: no other replica could mend it; stop the node, and restore a copy, or cut off what is "
            "damaged and what follows it: raftwerk log repair %s --execute",
            *(replica.topic_partition, shlex.quote(log.directory)),
        )
        return False

    def _sources(self, replica: Replica) -> list[int]:
        """The other replicas: the leader, then the ISR, then the rest."""
        registration = self._hosted.registration(replica.topic_partition)
        if registration is None:
            return []
        brokers = self._hosted.image.brokers
        ranked = dict.fromkeys((registration.leader, *registration.isr, *registration.replicas))
        return [each for each in ranked if each != self._hosted.local_id and each in brokers and brokers[each].active]

    async def _copy_from(self, broker_id: int, replica: Replica, log: PartitionLog, base_offset: int) -> None:
        connection = await self._connect(broker_id)
        try:
            mending = SegmentMending(log, self._disk, base_offset)
            try:
                await self._fetch_all(connection, replica, mending)
                await run_in_steps(mending.placing(), self._disk)
            finally:
                mending.end()
        finally:
            connection.close()

    async def _fetch_all(self, connection: FetchConnection, replica: Replica, mending: SegmentMending) -> None:
        empty_answers = 0
        while mending.next_offset < mending.end_offset:
            before = mending.next_offset
            async with asyncio.timeout(_ANSWER_LIMIT_S):
                mending.add(await self._fetch(connection, replica, before))
            if mending.next_offset == before:
                empty_answers += 1
                if empty_answers > _EMPTY_ANSWERS_MAX:
                    raise MendingGivenUpError(f"it has nothing committed from offset {before} on")
                await asyncio.sleep(_FETCH_WAIT_MS / 1000)

    async def _fetch(self, connection: FetchConnection, replica: Replica, offset: int) -> memoryview:
        wanted = FetchPartition(replica.topic_partition.partition, fetch_offset=offset, max_bytes=_FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=_FETCH_WAIT_MS, max_bytes=_FETCH_BYTES, topics=[FetchTopic(None, replica.topic_id, [wanted])]
        )
        body = encode_fetch_request(_FETCH_VERSION, request)
        answer = await connection.send_raw(ApiKey.FETCH, _FETCH_VERSION, [body])
        response = decode_fetch_response(_FETCH_VERSION, answer, 0)
        rows = [row for topic in response.topics for row in topic.partitions]
        error_code = response.error_code or (rows[0].error_code if rows else 0)
        if error_code or not rows:
            raise MendingGivenUpError(f"it answered with {error_name(error_code)}")
        return memoryview(rows[0].records_in_memory())
