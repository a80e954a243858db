"""A member of a consumer group that reads one topic, by the protocol of KIP-848.

The coordinator assigns the partitions. Its answer to a heartbeat has the new assignment of the member. The member
commits and gives up what was taken away, begins what was added, and confirms that in its next heartbeat.

A record counts as read when the caller asks for the next ones, or calls `done`. After a crash, records are read again
rather than lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from ...wire.api_keys import ApiKey
from ...wire.errors import ErrorCode
from ...wire.types import TopicPartition
from .access.needed_rights import Asked
from .client_errors import ClientError, OffsetOutOfRangeError, RefusedError
from .cluster_client import ClusterClient
from .consumer import EARLIEST, LATEST, READ_UNCOMMITTED, Consumed, Consumer
from .group_client import GroupClient

_HEARTBEAT_VERSION = 1
_LEAVE_EPOCH = -1
_REBALANCE_TIMEOUT_MS = 300_000
_COMMIT_EVERY_S = 5.0
_RETRY_PAUSE_S = 0.5
_LOST_MEMBERSHIP = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class GroupMember:
    """Joins a group when it is entered; commits and leaves the group when it is left. An async context manager.

    `member_id` is a unique text. `start_at` (`EARLIEST` or `LATEST`) is where partitions begin
    in which the group has no valid offset. `isolation_level` is that of a `Consumer`.
    """

    def __init__(
        self,
        client: ClusterClient,
        group_id: str,
        topic: str,
        *,
        member_id: str,
        start_at: int = EARLIEST,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> None:
        self.ends: dict[int, int] | None = None
        """Offsets by partition. Records from there on are neither returned nor committed."""
        self._client = client
        self._group = GroupClient(client)
        self._group_id = group_id
        self._topic = topic
        self._start_at = start_at
        self._consumer = Consumer(client, topic, isolation_level=isolation_level)
        self._member_id = member_id
        self._epoch = 0
        self._topic_id: UUID | None = None
        """The topic that the positions are of: another one may have the name by now."""
        self._next_heartbeat = 0.0
        self._next_commit = 0.0
        self._done: dict[int, int] = {}
        self._committed: dict[int, int] = {}

    async def __aenter__(self) -> GroupMember:
        await self._consumer.start(at=0)
        self._consumer.positions = {}
        try:
            await self._heartbeat()
        except BaseException:  # the coordinator may have taken the member in already
            await self._leave()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            with contextlib.suppress(ClientError):  # of a topic that is deleted nothing can be committed
                await self.commit()
        finally:
            await self._leave()

    @property
    def partitions(self) -> list[int]:
        """The partitions that this member reads now."""
        return sorted(self._consumer.positions)

    def done(self, consumed: Consumed) -> None:
        """Count the record, and those before it, as read."""
        if consumed.partition in self._done:
            self._done[consumed.partition] = consumed.record.offset + 1

    async def poll(self) -> list[Consumed]:
        """Count what was returned before as read; return more records. Heartbeats and commits happen here."""
        self._settle()
        now = asyncio.get_running_loop().time()
        try:
            if now >= self._next_commit:
                await self.commit()
            if now >= self._next_heartbeat:
                await self._heartbeat()
        except RefusedError:
            raise
        except ClientError as error:  # no broker answers for the moment
            self._consumer.on_no_answer(error)
            await asyncio.sleep(_RETRY_PAUSE_S)
        if not self._consumer.positions:
            await asyncio.sleep(_RETRY_PAUSE_S)
            return []
        try:
            found = await self._consumer.poll()
        except OffsetOutOfRangeError as error:  # retention has deleted what was not read yet
            if error.partition in self._done:  # it may have been given up since it was asked for
                await self._begin({error.partition: self._done[error.partition]})
            return []
        return [one for one in found if self.ends is None or one.record.offset < self.ends.get(one.partition, 0)]

    async def is_past(self, ends: dict[int, int]) -> bool:
        """Whether the group, with all its members, has read everything below `ends`: what others read they commit."""
        self._settle()
        if any(at < ends.get(partition, 0) for partition, at in self._done.items()):
            return False
        await self.commit()
        committed = await self._group.committed(self._group_id)
        return all(committed.get(TopicPartition(self._topic, one), 0) >= end for one, end in ends.items())

    async def commit(self) -> None:
        """Commit how far this member has read."""
        self._next_commit = asyncio.get_running_loop().time() + _COMMIT_EVERY_S
        changed = {one: at for one, at in self._done.items() if self._committed.get(one) != at}
        if not changed:
            return
        if await self._topic_id_now() != self._topic_id:  # offsets are committed by the name of the topic
            self._next_heartbeat = 0.0
            return
        offsets = {TopicPartition(self._topic, partition): at for partition, at in changed.items()}
        try:
            await self._group.commit(self._group_id, offsets, member=(self._member_id, self._epoch))
        except RefusedError as error:
            if error.code not in (*_LOST_MEMBERSHIP, ErrorCode.STALE_MEMBER_EPOCH):
                raise
            self._next_heartbeat = 0.0  # tells the new epoch, or that the membership is lost
            return
        self._committed.update(changed)

    # ---------------------------------------------------------------- membership

    async def _heartbeat(self) -> None:
        """Heartbeat until the coordinator knows what this member has."""
        while True:
            answer = await self._beat(self._epoch)
            if answer.error_code in _LOST_MEMBERSHIP:
                self._epoch = 0
                await self._take(())
                continue
            if answer.error_code:
                asked = Asked(ApiKey.CONSUMER_GROUP_HEARTBEAT, topic=self._topic, group=self._group_id)
                raise RefusedError(answer.error_code, f"group {self._group_id}", answer.error_message, asked=asked)
            self._epoch = answer.member_epoch
            self._next_heartbeat = asyncio.get_running_loop().time() + answer.heartbeat_interval / 1000
            if answer.assignment is None:
                return
            rows = answer.assignment.topic_partitions
            if not await self._take([one for row in rows if row.topic_id == self._topic_id for one in row.partitions]):
                return

    async def _leave(self) -> None:
        """Leave the group. The topic may be deleted by now."""
        fields = {"group_id": self._group_id, "member_id": self._member_id, "member_epoch": _LEAVE_EPOCH}
        with contextlib.suppress(ClientError):  # the group finds out by its session time-out
            await self._group.ask(self._group_id, ApiKey.CONSUMER_GROUP_HEARTBEAT, _HEARTBEAT_VERSION, fields)

    async def _beat(self, epoch: int) -> Any:
        topic_id = await self._topic_id_now()
        if topic_id != self._topic_id:
            self._topic_id = topic_id
            self._give_up(self.partitions)
        owned = {"topic_id": topic_id, "partitions": self.partitions}
        fields = {
            "group_id": self._group_id,
            "member_id": self._member_id,
            "member_epoch": epoch,
            "rebalance_timeout": _REBALANCE_TIMEOUT_MS,
            "subscribed_topic_names": [self._topic],
            "topic_partitions": [owned] if owned["partitions"] else [],
        }
        return await self._group.ask(self._group_id, ApiKey.CONSUMER_GROUP_HEARTBEAT, _HEARTBEAT_VERSION, fields)

    async def _take(self, assigned: Iterable[int]) -> bool:
        """Give up what is not assigned, begin what is new; whether anything changed."""
        wanted, owned = set(assigned), set(self._consumer.positions)
        if wanted == owned:
            return False
        if owned - wanted and self._epoch:
            await self.commit()
        self._give_up(owned - wanted)
        added = sorted(wanted - owned)
        if added:
            committed = await self._group.committed(self._group_id)
            await self._begin({one: committed.get(TopicPartition(self._topic, one), -1) for one in added})
        return True

    def _give_up(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            for offsets in (self._consumer.positions, self._done, self._committed):
                offsets.pop(partition, None)

    async def _topic_id_now(self) -> UUID | None:
        """The id of the topic that has the name. Raises `RefusedError` when there is none."""
        return (await self._client.metadata([self._topic], purpose=ApiKey.FETCH)).topic(self._topic).topic_id

    # ---------------------------------------------------------------- positions

    async def _begin(self, offsets: dict[int, int]) -> None:
        """Read these partitions from these offsets on; from `start_at` where the log has no such offset."""
        await self._consumer.learn(offsets)
        firsts = await self._consumer.offsets(EARLIEST, offsets)
        ends = await self._consumer.offsets(LATEST, offsets, READ_UNCOMMITTED)
        starts = await self._consumer.offsets(self._start_at, offsets)
        for partition, offset in offsets.items():
            is_there = firsts[partition] <= offset <= ends[partition]
            begin = offset if is_there else starts[partition]
            self._consumer.positions[partition] = self._done[partition] = begin

    def _settle(self) -> None:
        """Count all that `poll` returned as read."""
        for partition, position in self._consumer.positions.items():
            end = position if self.ends is None else self.ends.get(partition, 0)
            self._done[partition] = max(self._done[partition], min(position, end))
