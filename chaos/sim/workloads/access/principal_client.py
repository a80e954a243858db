"""A client in the simulator that logs in, does what it may and what it may not do, and judges each answer.

The answer of a broker must be the one that some set of entries gives which this broker had applied between the request
and its answer. While nothing changes that is one set, so an entry that was removed must not decide any more.

A throttle time must be within what Kafka's rule gives for what the client has used in the window of the quota, and
zero where no quota was in force. A throttled connection is not read for that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .....cluster.client.cluster_client import NO_ANSWER
from .....security.authorizer.acl_binding import AclBinding, AclOperation, ResourceType
from .....security.client_login import ClientLogin
from .....security.sasl.plain import PlainClient
from .....wire.api_keys import ApiKey
from .....wire.client import Connection, connect
from .....wire.codec import Struct
from .....wire.errors import ErrorCode
from .....wire.fetch import FetchPartition, FetchRequest, FetchTopic, decode_fetch_response, encode_fetch_request
from .....wire.records import NewRecord, encode_batch
from ...invariants.access_oracle import Question, QuotaEntry, is_allowed, limit_of
from ...invariants.applied_entries import AppliedEntries
from ...invariants.invariant_broken import InvariantBroken
from ...simulated_cluster import LOGIN_PORT, SimulatedCluster
from ..clients import ClientContext, TopicClient
from .login_settings import PASSWORD, WINDOW_MS

CLIENT_HOST = "client"
GROUP = "vault-readers"
PRODUCED, FETCHED = "producer_byte_rate", "consumer_byte_rate"
_PRODUCE, _FETCH, _METADATA, _LIST_OFFSETS = 9, 12, 12, 7
_OFFSET_FETCH, _OFFSET_COMMIT, _FIND_COORDINATOR = 7, 8, 4
_LATEST = -1
_REFUSALS = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED)
_TIMEOUT_S = 1.5
_WAIT_MAX_S = 1.5
_PAUSE_S = 0.02
_SIZE_MIN, _SIZE_MAX = 30, 2_000
_FETCH_MAX_BYTES = 3_000
_OVERHEAD_BYTES = 300
"""More than the headers of a request and of a batch."""
_SAMPLES_MS = WINDOW_MS + 1_000
"""What was recorded before this time is in no sample: a sample counts for the window after its last record."""
_ROUNDING_MS = 2

_Ask: TypeAlias = Callable[[int, str], Awaitable[int]]
"""Asks a broker something about a topic, judges the answer and returns its throttle time."""


@dataclass(slots=True)
class Entries:
    """What the nodes have applied, which decides the answers."""

    acls: AppliedEntries[AclBinding]
    quotas: AppliedEntries[QuotaEntry]
    without_acl: bool
    """Whether all may be done to a resource for which there is no entry."""


@dataclass(slots=True)
class WrittenRecords:
    """The records of one topic, by what their producers were told."""

    acked: dict[str, int] = field(default_factory=dict)
    """The offset of each value."""
    refused: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Use:
    """Bytes that one request used of a quota, at most."""

    node_id: int
    key: str
    bytes_max: int
    ended_s: float | None = None


class LoggedInConnections:
    """The connections of one user to the brokers' listener for logins."""

    def __init__(self, user: str, client_id: str) -> None:
        self._client_id = client_id
        self._login = ClientLogin(new_exchange=lambda host: PlainClient(user, PASSWORD))
        self._open: dict[int, Connection] = {}

    async def to(self, node_id: int) -> Connection:
        """The connection to a broker. Raises one of `NO_ANSWER`."""
        connection = self._open.get(node_id)
        if connection is None or connection.is_closed:
            host = SimulatedCluster.name_of(node_id)
            connection = await connect(
                host, LOGIN_PORT, client_id=self._client_id, timeout_s=_TIMEOUT_S, login=self._login
            )
            self._open[node_id] = connection
        return connection

    async def request(self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any]) -> Struct:
        """Ask a broker. Raises one of `NO_ANSWER`, and begins a new connection afterwards."""
        connection = await self.to(node_id)
        try:
            return await connection.request(api, version, fields, timeout_s=_TIMEOUT_S)
        except NO_ANSWER:
            connection.close()
            raise


class PrincipalClient:
    """Sends requests of all kinds as one user until `stop`, each after the answer to the one before."""

    def __init__(
        self,
        user: str,
        context: ClientContext,
        brokers: list[int],
        topics: Mapping[str, TopicClient],
        records: Mapping[str, WrittenRecords],
        entries: Entries,
    ) -> None:
        """`topics` are clients of a super user, which know the leaders."""
        self.name = f"user {user}"
        self.client_id = f"{user}-client"
        self.allowed = self.refused = self.throttled = 0
        """How many answers there were of each kind."""
        self._user = user
        self._context = context
        self._brokers = brokers
        self._topics = topics
        self._records = records
        self._entries = entries
        self._connections = LoggedInConnections(user, self.client_id)
        self._uses: list[_Use] = []
        self._muted_until_s: dict[Connection, float] = {}
        self._sent = 0
        self._stopping = False

    def stop(self) -> None:
        """Send no more requests."""
        self._stopping = True

    async def run(self) -> None:
        """Send requests until `stop`."""
        rng = self._context.rng
        while not self._stopping:
            await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))
            throttle_ms = await self._ask_anything(rng.choice(self._brokers), rng.choice(list(self._topics)))
            if throttle_ms and rng.random() < 0.5:
                await asyncio.sleep(min(throttle_ms / 1000, _WAIT_MAX_S))

    async def ask_for_all(self) -> None:
        """Ask every broker for everything, until it has answered: no client is throttled for ever."""
        for node_id in self._brokers:
            for topic in self._topics:
                for ask in (self._describe, self._list_offsets, self._produce, self._fetch):
                    await self._until_answered(node_id, topic, ask)
            for ask in (self._find_coordinator, self._fetch_offsets, self._commit):
                await self._until_answered(node_id, "", ask)

    async def _until_answered(self, node_id: int, topic: str, ask: _Ask) -> None:
        while True:
            if await self._answered(node_id, topic, ask) is not None:
                return
            await asyncio.sleep(_PAUSE_S)

    async def _ask_anything(self, node_id: int, topic: str) -> int | None:
        asks = (
            *(self._produce, self._produce, self._produce, self._fetch, self._fetch, self._describe),
            *(self._list_offsets, self._find_coordinator, self._fetch_offsets, self._commit),
        )
        return await self._answered(node_id, topic, self._context.rng.choice(asks))

    async def _answered(self, node_id: int, topic: str, ask: _Ask) -> int | None:
        """The throttle time; None without an answer."""
        try:
            throttle_ms = await ask(node_id, topic)
        except NO_ANSWER:
            return None
        self.throttled += throttle_ms > 0
        return throttle_ms

    # -- requests

    async def _describe(self, node_id: int, topic: str) -> int:
        fields = {"topics": [{"name": topic, "topic_id": None}], "allow_auto_topic_creation": False}
        return await self._ask(
            *(node_id, ApiKey.METADATA, _METADATA, fields, lambda answer: answer.topics[0].error_code),
            self._question(AclOperation.DESCRIBE, ResourceType.TOPIC, topic),
        )

    async def _list_offsets(self, node_id: int, topic: str) -> int:
        asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": _LATEST}
        fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [asked]}]}
        return await self._ask(
            *(node_id, ApiKey.LIST_OFFSETS, _LIST_OFFSETS, fields),
            lambda answer: answer.topics[0].partitions[0].error_code,
            self._question(AclOperation.DESCRIBE, ResourceType.TOPIC, topic),
        )

    async def _find_coordinator(self, node_id: int, topic: str) -> int:
        fields = {"key_type": 0, "coordinator_keys": [GROUP]}
        return await self._ask(
            *(node_id, ApiKey.FIND_COORDINATOR, _FIND_COORDINATOR, fields),
            lambda answer: answer.coordinators[0].error_code,
            self._question(AclOperation.DESCRIBE, ResourceType.GROUP, GROUP),
        )

    async def _fetch_offsets(self, node_id: int, topic: str) -> int:
        fields = {"group_id": GROUP, "topics": [], "require_stable": False}
        return await self._ask(
            *(node_id, ApiKey.OFFSET_FETCH, _OFFSET_FETCH, fields, lambda answer: answer.error_code),
            self._question(AclOperation.DESCRIBE, ResourceType.GROUP, GROUP),
        )

    async def _commit(self, node_id: int, topic: str) -> int:
        """As a member that there is not, so that nothing is written."""
        row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
        fields = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": 5,
            "member_id": "nobody",
            "topics": [{"name": next(iter(self._topics)), "partitions": [row]}],
        }
        return await self._ask(
            *(node_id, ApiKey.OFFSET_COMMIT, _OFFSET_COMMIT, fields),
            lambda answer: answer.topics[0].partitions[0].error_code,
            self._question(AclOperation.READ, ResourceType.GROUP, GROUP),
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
        )

    async def _produce(self, node_id: int, topic: str) -> int:
        """One record to the leader, mostly; another broker decides alike."""
        rng, records = self._context.rng, self._records[topic]
        node_id = self._leader(topic, node_id)
        self._sent += 1
        size = round(_SIZE_MIN * (_SIZE_MAX / _SIZE_MIN) ** rng.random())
        value = f"{self._user}/{topic}/{self._sent}/".ljust(size, ".")
        data = bytes(encode_batch([NewRecord(None, value.encode(), (), self._context.wall_ms())]))
        fields = {
            "transactional_id": None,
            "acks": -1,
            "timeout": 1000,
            "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": data}]}],
        }
        use = self._begin_use(node_id, PRODUCED, len(data) + _OVERHEAD_BYTES)
        begun_s = _now_s()
        connection = await self._connections.to(node_id)
        try:
            answer = await connection.request(ApiKey.PRODUCE, _PRODUCE, fields, timeout_s=_TIMEOUT_S)
        except NO_ANSWER:
            connection.close()
            await self._topics[topic].refresh()
            raise
        row = answer.responses[0].partition_responses[0]
        use.ended_s = _now_s()
        self._judge(node_id, begun_s, row.error_code, self._question(AclOperation.WRITE, ResourceType.TOPIC, topic))
        if row.error_code == ErrorCode.NONE:
            records.acked[value] = row.base_offset
            self._context.checker.on_acked((self._topics[topic].topic_id, 0), row.base_offset, 1)
        elif row.error_code in _REFUSALS:
            records.refused.add(value)
        else:
            await self._topics[topic].refresh()
        return self._judge_throttle(connection, node_id, begun_s, answer.throttle_time, (PRODUCED, len(data)))

    async def _fetch(self, node_id: int, topic: str) -> int:
        """Records from any offset on."""
        rng = self._context.rng
        node_id = self._leader(topic, node_id)
        acked = self._records[topic].acked
        offset = rng.randrange(0, len(acked) + 1)
        wanted = FetchPartition(0, fetch_offset=offset, max_bytes=_FETCH_MAX_BYTES)
        request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic, None, [wanted])])
        use = self._begin_use(node_id, FETCHED, _FETCH_MAX_BYTES + _SIZE_MAX + _OVERHEAD_BYTES)
        begun_s = _now_s()
        connection = await self._connections.to(node_id)
        body = [encode_fetch_request(_FETCH, request)]
        try:
            answer = await connection.send_raw(ApiKey.FETCH, _FETCH, body, timeout_s=_TIMEOUT_S)
        except NO_ANSWER:
            connection.close()
            raise
        response = decode_fetch_response(_FETCH, answer)
        row = response.topics[0].partitions[0]
        size = len(bytes(row.records_in_memory()))
        use.bytes_max, use.ended_s = size, _now_s()
        self._judge(node_id, begun_s, row.error_code, self._question(AclOperation.READ, ResourceType.TOPIC, topic))
        if row.error_code and size:
            raise InvariantBroken("who is refused gets no records", f"{self._user} {topic}: {size} bytes")
        return self._judge_throttle(connection, node_id, begun_s, response.throttle_ms, (FETCHED, size))

    async def _ask(
        self,
        node_id: int,
        api: ApiKey,
        version: int,
        fields: Mapping[str, Any],
        code_of: Callable[[Struct], int],
        question: Question,
        refusal: ErrorCode | None = None,
    ) -> int:
        """Ask and judge; returns the throttle time. `refusal`: the only code that counts as one."""
        begun_s = _now_s()
        connection = await self._connections.to(node_id)
        try:
            answer = await connection.request(api, version, fields, timeout_s=_TIMEOUT_S)
        except NO_ANSWER:
            connection.close()
            raise
        code = code_of(answer)
        self._judge(node_id, begun_s, ErrorCode.NONE if refusal not in (None, code) else code, question)
        return self._judge_throttle(connection, node_id, begun_s, answer.throttle_time, None)

    def _question(self, operation: AclOperation, resource_type: ResourceType, name: str) -> Question:
        return Question(f"User:{self._user}", CLIENT_HOST, operation, resource_type, name)

    def _leader(self, topic: str, otherwise: int) -> int:
        partitions = self._topics[topic].partitions
        leader = partitions[0].leader if partitions else -1
        return otherwise if leader < 0 or self._context.rng.random() < 0.1 else leader

    # -- judgement

    def _judge(self, node_id: int, begun_s: float, code: int, question: Question) -> None:
        """Whatever else is wrong, a broker looks first whether the client may do it."""
        is_refused = code in _REFUSALS
        self.refused += is_refused
        self.allowed += not is_refused
        known = self._entries.acls.since(node_id, begun_s)
        if not any(
            is_allowed(acls, question, without_acl=self._entries.without_acl) is not is_refused for acls in known
        ):
            done = "refuses" if is_refused else "allows"
            entries = ", ".join(sorted(map(str, known[-1]))) if known else "not known"
            detail = f"node {node_id} {done} {question}; its entries are {entries}"
            raise InvariantBroken("a broker decides by the entries that it has applied", detail)

    def _begin_use(self, node_id: int, key: str, bytes_max: int) -> _Use:
        use = _Use(node_id, key, bytes_max)
        self._uses.append(use)
        return use

    def _judge_throttle(
        self, connection: Connection, node_id: int, begun_s: float, throttle_ms: int, used: tuple[str, int] | None
    ) -> int:
        """`used`: the quota that the request uses up, and how many bytes of it at least."""
        now_s = _now_s()
        if now_s < self._muted_until_s.get(connection, 0.0) - _ROUNDING_MS / 1000:
            raise InvariantBroken("a throttled connection is not read", f"{self._user} at node {node_id}")
        if throttle_ms:
            self._muted_until_s = {connection: begun_s + throttle_ms / 1000}
        key, amount = used or ("", 0)
        limits = [
            limit_of(quotas, key, self._user, self.client_id) for quotas in self._entries.quotas.since(node_id, begun_s)
        ]
        known = [each for each in limits if each is not None]
        earliest_s = begun_s - _SAMPLES_MS / 1000
        self._uses = [each for each in self._uses if each.ended_s is None or each.ended_s >= earliest_s]
        total = sum(each.bytes_max for each in self._uses if (each.node_id, each.key) == (node_id, key))
        most_ms = total * 1000 / min(known) if known else 0
        least_ms = amount * 1000 / max(known) - _SAMPLES_MS if known and len(known) == len(limits) else 0
        detail = f"{self._user} at node {node_id}: {throttle_ms} ms, {key or 'no bytes'} {limits}, used {amount}"
        if throttle_ms > most_ms + _ROUNDING_MS:
            raise InvariantBroken("nobody is throttled for longer than a quota says", f"{detail}, lately {total}")
        if throttle_ms < least_ms - _ROUNDING_MS:
            raise InvariantBroken("who exceeds a quota is throttled", detail)
        return throttle_ms


def _now_s() -> float:
    return asyncio.get_running_loop().time()
