"""Members of consumer groups in the simulator, of both protocols, and what they must never see.

They own partitions of a topic and commit ever greater offsets for them. What one of them was told is committed, nobody
may find undone later; what two of them were given in one generation must not overlap.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import Connection, connect
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode, WireFormatError

GROUP = "readers"
TOPIC = "flights"
PARTITIONS = 6
_TIMEOUT_S = 3.0
_PAUSE_S = 0.05
_HEARTBEAT_S = 0.1
_LOST = (OSError, WireFormatError)


@dataclass
class GroupHistory:
    """`acked`: the highest commit of each partition that was answered; `tried`: the highest that was sent."""

    acked: dict[int, int] = field(default_factory=dict)
    tried: dict[int, int] = field(default_factory=dict)
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    commits: int = 0
    rebalances: int = 0

    def on_assigned(self, generation: int, member_id: str, partitions: list[int]) -> None:
        self.rebalances += 1
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), member_id)
            if owner != member_id:
                detail = f"generation {generation}, partition {partition}: {owner} and {member_id}"
                raise InvariantBroken("a partition has one reader in a generation", detail)

    def on_fetched(self, partition: int, offset: int, acked_before: int) -> None:
        if offset < acked_before:
            detail = f"partition {partition}: {acked_before} was acknowledged, {offset} is found"
            raise InvariantBroken("a commit that was acknowledged is found again", detail)
        if offset > self.tried.get(partition, 0):
            raise InvariantBroken("only what was sent is committed", f"partition {partition}: {offset}")


class Member:
    """One member; it runs until `stop`. `owned` are the partitions that it reads now."""

    def __init__(self, name: str, brokers: list[str], rng: random.Random, history: GroupHistory) -> None:
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.owned: list[int] = []
        self.history = history
        self._brokers = brokers
        self._rng = rng
        self._connection: Connection | None = None
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        while not self._stopping:
            try:
                await self._one_incarnation()
            except _LOST:
                self._drop_connection()
                await asyncio.sleep(_PAUSE_S)

    async def _one_incarnation(self) -> None:
        raise NotImplementedError

    async def ask(self, api: ApiKey, version: int, fields: dict[str, Any], timeout_s: float = _TIMEOUT_S) -> Struct:
        """Send a request to the coordinator."""
        if self._connection is None or self._connection.is_closed:
            self._connection = await self._find_coordinator()
        return await self._connection.request(api, version, {"group_id": GROUP, **fields}, timeout_s=timeout_s)

    async def _find_coordinator(self) -> Connection:
        any_broker = await connect(self._rng.choice(self._brokers), 9092, client_id=self.name, timeout_s=_TIMEOUT_S)
        try:
            fields = {"key_type": 0, "coordinator_keys": [GROUP]}
            row = (await any_broker.request(ApiKey.FIND_COORDINATOR, 4, fields, timeout_s=_TIMEOUT_S)).coordinators[0]
        finally:
            any_broker.close()
        if row.error_code:
            raise ConnectionError("there is no coordinator")
        return await connect(row.host, row.port, client_id=self.name, timeout_s=_TIMEOUT_S)

    def has_moved(self, code: int) -> bool:
        """Whether the coordinator must be found again."""
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._drop_connection()
        return code in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def fetch(self, partitions: list[int]) -> dict[int, int] | None:
        """The committed offset, 0 if there is none; None if it is unknown."""
        before = dict(self.history.acked)
        asked = {"group_id": GROUP, "member_id": None, "member_epoch": -1}
        groups = [{**asked, "topics": [{"name": TOPIC, "partition_indexes": partitions}]}]
        answer = (await self.ask(ApiKey.OFFSET_FETCH, 9, {"groups": groups, "require_stable": True})).groups[0]
        if answer.error_code:
            self.has_moved(answer.error_code)
            return None
        found = {row.partition_index: max(row.committed_offset, 0) for row in answer.topics[0].partitions}
        for partition, offset in found.items():
            self.history.on_fetched(partition, offset, before.get(partition, 0))
        return found

    async def commit(self, positions: dict[int, int]) -> int:
        """Commit a little more of every partition; the worst error code."""
        rows = []
        for partition in positions:
            positions[partition] += self._rng.randrange(1, 10)
            self.history.tried[partition] = max(self.history.tried.get(partition, 0), positions[partition])
            rows.append({"partition_index": partition, "committed_offset": positions[partition]})
        fields = {"member_id": self.member_id, "generation_id_or_member_epoch": self.generation}
        answer = await self.ask(ApiKey.OFFSET_COMMIT, 9, {**fields, "topics": [{"name": TOPIC, "partitions": rows}]})
        for row in answer.topics[0].partitions:
            if row.error_code:
                return int(row.error_code)
            self.history.acked[row.partition_index] = max(
                self.history.acked.get(row.partition_index, 0), positions[row.partition_index]
            )
        self.history.commits += 1
        return 0


class ClassicMember(Member):
    """By JoinGroup, SyncGroup, Heartbeat; the leader assigns partition p to member p modulo their number."""

    async def _one_incarnation(self) -> None:
        joined = await self._join()
        if joined is None:
            await asyncio.sleep(_PAUSE_S)
            return
        self.generation = joined.generation_id
        ids = [one.member_id for one in joined.members]
        parts = [{"member_id": one, "assignment": bytes(range(at, PARTITIONS, len(ids)))} for at, one in enumerate(ids)]
        fields = {
            "generation_id": self.generation,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocol_name": "modulo",
            "assignments": parts,
        }
        synced = await self.ask(ApiKey.SYNC_GROUP, 5, fields, 30.0)
        if synced.error_code:
            self._on_error(synced.error_code)
            return
        self.owned = list(synced.assignment)
        self.history.on_assigned(self.generation, self.member_id, self.owned)
        await self._read()
        self.owned = []

    async def _join(self) -> Struct | None:
        fields = {
            "session_timeout": 6_000,
            "rebalance_timeout": 10_000,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "modulo", "metadata": b""}],
        }
        answer = await self.ask(ApiKey.JOIN_GROUP, 9, fields, 30.0)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return await self._join()
        if answer.error_code:
            self._on_error(answer.error_code)
            return None
        return answer

    async def _read(self) -> None:
        positions = await self.fetch(self.owned)
        while positions is not None and not self._stopping:
            await asyncio.sleep(self._rng.expovariate(1 / _HEARTBEAT_S))
            code = await self.commit(positions) if positions else 0
            if not code:
                member = {"member_id": self.member_id, "generation_id": self.generation}
                code = (await self.ask(ApiKey.HEARTBEAT, 4, member)).error_code
            if self.has_moved(code):
                await asyncio.sleep(_PAUSE_S)
            elif code:
                self._on_error(code)
                return

    def _on_error(self, code: int) -> None:
        if not self.has_moved(code) and code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.member_id = ""


class ConsumerMember(Member):
    """By ConsumerGroupHeartbeat; `topic_id` returns the topic's id."""

    def __init__(
        self,
        name: str,
        brokers: list[str],
        rng: random.Random,
        history: GroupHistory,
        topic_id: Callable[[], UUID],
    ) -> None:
        super().__init__(name, brokers, rng, history)
        self._topic_id = topic_id
        self.member_id = name
        self.positions: dict[int, int] = {}

    async def _one_incarnation(self) -> None:
        self.generation, self.owned, self.positions = 0, [], {}
        while not self._stopping:
            code = await self._beat()
            if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                return
            if code:
                self.has_moved(code)
            elif self.positions:
                code = await self.commit(self.positions)
                self.has_moved(code)
            await asyncio.sleep(self._rng.expovariate(1 / _HEARTBEAT_S))

    async def _beat(self) -> int:
        topics = [{"topic_id": self._topic_id(), "partitions": self.owned}] if self.owned else []
        fields = {
            "member_id": self.member_id,
            "member_epoch": self.generation,
            "rebalance_timeout": 10_000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": topics,
        }
        answer = await self.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields, 10.0)
        if answer.error_code:
            return int(answer.error_code)
        self.generation = answer.member_epoch
        if answer.assignment is not None:
            now = sorted(part for row in answer.assignment.topic_partitions for part in row.partitions)
            await self._take(now)
        return 0

    async def _take(self, now: list[int]) -> None:
        if now != self.owned:
            self.history.rebalances += 1
        self.owned = now
        self.positions = {part: at for part, at in self.positions.items() if part in now}
        new = [part for part in now if part not in self.positions]
        while new:
            found = await self.fetch(new)
            if found is not None:
                self.positions |= found
                return
            await asyncio.sleep(_PAUSE_S)
