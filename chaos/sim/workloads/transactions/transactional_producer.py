"""One incarnation of a transactional producer in the simulator.

It does what Java's does: it asks for its producer id, adds partitions where the version of the protocol wants that
(`transaction.version` below 2), sends the batches of a partition one after the other, and repeats every request until
the answer is definite. It may learn the version from the cluster, when it begins and with each end of a transaction: a
transaction ends by the version that it began with, and who goes up to 2 gets a new epoch first. Two incarnations of one
transactional id may act at the same time; the older one is a zombie, and must be told so before it can do harm.
Sources: KIP-98, KIP-360, KIP-447, KIP-890.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .....cluster.client.client_errors import ClientError, is_retriable
from .....cluster.client.cluster_client import NO_ANSWER
from .....cluster.client.requests.coordinator_requests import MOVED
from .....controller.metadata.metadata_image import TRANSACTION_VERSION_FEATURE
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from .....wire.errors import ErrorCode
from .....wire.records import NewRecord, encode_batch
from ...invariants.invariant_broken import InvariantBroken
from ..clients import ClientContext, TopicClient, find_coordinator
from .repeated_requests import Ask, RepeatedRequests, Request, SentTransactionalBatch

GROUP_KEY, TRANSACTION_KEY = 0, 1
_API_VERSIONS = 4
_INIT_PRODUCER_ID = 4
_INIT_THAT_KEEPS = 6
_ADD_PARTITIONS = 3
_ADD_OFFSETS = 3
_RETRY_PAUSE_S = 0.05
_TIMEOUT_S = 3.0
_SHORT_TIMEOUTS_S = (0.1, 0.4, _TIMEOUT_S)
_NOT_HERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_PUT_OFF_PROBABILITY = 0.5
_DOUBTFUL = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT)
_FENCED = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
)
_ABORTABLE = (
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
)
_WITH_EPOCH_BUMP = 2
"""The `transaction.version` of KIP-890: every end of a transaction gives the producer a new epoch."""


class FencedError(Exception):
    """A newer incarnation has taken over, or the transaction timed out: this incarnation must end."""


class AbortableError(Exception):
    """The transaction cannot be committed any more; after an abort the producer may go on."""


def _is_temporary(code: int) -> bool:
    return is_retriable(code) or code in (ErrorCode.CONCURRENT_TRANSACTIONS, *MOVED)


class ClientStyle(NamedTuple):
    """How an incarnation acts: by which `transaction.version`, and whether it is impatient.

    Without a version it goes by the level that the cluster has finalized. An impatient one waits for answers only for a
    short time, repeats the request on another connection, and now and then gives up a batch and aborts. What it sent
    may arrive later, after the next requests. Who is impatient with leaders does that only with Produce requests. One
    that asks any broker may be told of a former coordinator, by a broker that is cut off from all others. A careless
    one asks for its next epoch, or ends a transaction without records, whenever it likes. One that is easily put off
    aborts its transaction where a broker does not have the partition, or not yet. One that is often idle pauses for
    seconds, in a transaction or between two. One that repeats itself now and then sends a request or an old batch
    again, as after an answer that was lost.
    """

    version: int | None
    is_impatient: bool = False
    is_impatient_with_leaders: bool = False
    asks_any_broker: bool = False
    is_careless: bool = False
    is_easily_put_off: bool = False
    is_often_idle: bool = False
    repeats_itself: bool = False


def records_of(values: Sequence[str], now_ms: int) -> list[NewRecord]:
    """Records that have their values as keys, too."""
    return [NewRecord(value.encode(), value.encode(), (), now_ms) for value in values]


def transactional_batch(records: Sequence[NewRecord], producer: tuple[int, int], sequence: int) -> bytes:
    """A batch of a transaction."""
    producer_id, epoch = producer
    return bytes(
        encode_batch(
            records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
        )
    )


def produce_fields(transactional_id: str, topic: str, batches: Mapping[int, bytes]) -> dict[str, Any]:
    """The fields of a Produce request with batches by partition."""
    rows = [{"index": partition, "records": batch} for partition, batch in batches.items()]
    return {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout": 1500,
        "topic_data": [{"name": topic, "partition_data": rows}],
    }


class GroupMember(NamedTuple):
    """The member of a group for which offsets are committed, and its generation or member epoch (KIP-447)."""

    member_id: str
    generation: int


_NO_MEMBER = GroupMember("", -1)


class TransactionalProducer:
    """One incarnation of a transactional id.

    Its methods raise `FencedError` or `AbortableError`; whatever else an answer says breaks an invariant.
    """

    def __init__(
        self, context: ClientContext, name: str, transactional_id: str, style: ClientStyle, timeout_ms: int = 4_000
    ) -> None:
        self.name = name
        self.version = style.version or 0
        self._learns_version = style.version is None
        self._features_epoch = -1
        self._is_impatient = style.is_impatient
        self._asks_any_broker = style.asks_any_broker
        self._gives_up_batches = style.is_impatient or style.is_impatient_with_leaders
        self.producer = (-1, -1)
        """Its id and epoch."""
        self._context = context
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self._added: dict[tuple[str, int] | str, None] = {}
        """What the transaction contains by the coordinator's answers: partitions, and ids of groups."""
        self._topics: dict[str, TopicClient] = {}
        self._must_bump = False
        self._repeats = RepeatedRequests(context, name, transactional_id) if style.repeats_itself else None
        self.is_careless = style.is_careless
        self._is_easily_put_off = style.is_easily_put_off
        self.lost_answers = 0
        """How many requests to coordinators had no answer, or one that leaves open what was done."""
        self.lost_batches = 0
        """How many Produce requests had no answer."""

    def _topic(self, topic: str) -> TopicClient:
        if topic not in self._topics:
            self._topics[topic] = TopicClient(self._context, self.name)
            self._topics[topic].topic = topic
        return self._topics[topic]

    # ---------------------------------------------------------------- begin and end

    async def init(self) -> None:
        """Get a producer id and an epoch, which fences all earlier incarnations and aborts what they left open."""
        await self._learn_version()
        await self.next_producer()

    async def connect(self, topic: str, group: str) -> None:
        """Learn the leaders of a topic and the coordinator of a group, and connect to them, if they answer now."""
        client = self._topic(topic)
        await client.until_known()
        try:
            for leader in dict.fromkeys(each.leader for each in client.partitions):
                await client.cluster.connection(leader)
            self._coordinators[GROUP_KEY, group] = await self.find_coordinator((GROUP_KEY, group))
        except (ClientError, *NO_ANSWER):
            return

    async def next_producer(self) -> None:
        """Ask for the next epoch, as who has the present one (KIP-360)."""
        producer_id, epoch = self.producer
        fields = {
            "transactional_id": self._transactional_id,
            "transaction_timeout": self._timeout_ms,
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }
        answer = await self._ask_coordinator(ApiKey.INIT_PRODUCER_ID, _INIT_PRODUCER_ID, fields, _error_code)
        self._begin_epoch(answer.producer_id, answer.producer_epoch)
        self._check_initialized(is_new=producer_id < 0)
        if producer_id >= 0:
            await self._repeat(Request(ApiKey.INIT_PRODUCER_ID, _INIT_PRODUCER_ID, fields), answer, _error_code)

    async def recover(self) -> tuple[int, int] | None:
        """As `init`, for transactions without a time-out, and keep what is open: its producer, or None (KIP-939)."""
        fields = {
            "transactional_id": self._transactional_id,
            "transaction_timeout": self._timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
            "enable2_pc": True,
            "keep_prepared_txn": True,
        }
        answer = await self._ask_coordinator(ApiKey.INIT_PRODUCER_ID, _INIT_THAT_KEEPS, fields, _error_code)
        self._begin_epoch(answer.producer_id, answer.producer_epoch)
        is_kept = answer.ongoing_txn_producer_id >= 0
        self._check_initialized(is_new=True, is_kept=is_kept)
        return (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) if is_kept else None

    async def end(self, *, commit: bool) -> None:
        """Commit or abort. Before this returns, the answer of the coordinator is known."""
        bumps = self.version >= _WITH_EPOCH_BUMP
        if self._added or bumps:
            fields = {**self._who(), "committed": commit}
            request = Request(ApiKey.END_TXN, 5 if bumps else 3, fields)
            answer = await self._ask_coordinator(*request, _error_code)
            if bumps:
                self._begin_epoch(answer.producer_id, answer.producer_epoch)
            self._context.checker.transactions.check_ended(self.name, self.producer, is_commit=commit)
            await self._repeat(request, answer, _error_code)
        self._added.clear()
        await self._learn_version()
        must_bump = not bumps and (self._must_bump or self.version >= _WITH_EPOCH_BUMP)
        self._must_bump = False
        if must_bump:
            await self.next_producer()

    async def _learn_version(self) -> None:
        """Go by the finalized level from here on, if a broker says it now, and knows no less than others before."""
        if not self._learns_version:
            return
        cluster = self._topic(self._context.topic).cluster
        fields = {"client_software_name": "raftwerk", "client_software_version": "0"}
        try:
            answer = await cluster.request(ApiKey.API_VERSIONS, _API_VERSIONS, fields)
        except ClientError:
            return
        if answer.finalized_features_epoch > self._features_epoch:
            self._features_epoch = answer.finalized_features_epoch
            levels = {one.name: one.max_version_level for one in answer.finalized_features}
            self.version = levels.get(TRANSACTION_VERSION_FEATURE, 0)

    def _begin_epoch(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != self.producer:
            self._sequences.clear()
        self.producer = (producer_id, epoch)

    def _check_initialized(self, *, is_new: bool, is_kept: bool = False) -> None:
        checker = self._context.checker.transactions
        checker.check_initialized(self.name, self._transactional_id, self.producer, is_new=is_new, is_kept=is_kept)

    def _who(self) -> dict[str, Any]:
        producer_id, epoch = self.producer
        return {
            "transactional_id": self._transactional_id,
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }

    # ---------------------------------------------------------------- records

    async def send(self, topic: str, partition: int, values: Sequence[str]) -> None:
        """Write records in the transaction, whose values are their keys, as one batch; returns when they are acked."""
        await self.send_together(topic, {partition: values})

    async def send_together(self, topic: str, values: Mapping[int, Sequence[str]]) -> None:
        """Write a batch to each of some partitions, in one request to each leader; returns when all are acked."""
        await self._send(topic, values, lambda: self._with_own_keys(values))

    async def send_records(self, topic: str, partition: int, records: Sequence[NewRecord]) -> None:
        """As `send`, with keys and headers."""
        await self._send(topic, (partition,), lambda: {partition: records})

    async def _send(
        self, topic: str, partitions: Iterable[int], records: Callable[[], Mapping[int, Sequence[NewRecord]]]
    ) -> None:
        try:
            for partition in partitions:
                await self._add_partition(topic, partition)
            await self._produce(topic, records())
        except AbortableError:
            self._must_bump = True
            raise

    async def send_without_adding(self, topic: str, partition: int, values: Sequence[str]) -> None:
        """Write records as if the partition belonged to a transaction, of which the coordinator is told nothing."""
        await self._produce(topic, self._with_own_keys({partition: values}))

    def next_sequence(self, topic: str, partition: int) -> int:
        """The sequence number of the next batch to a partition."""
        return self._sequences.get((topic, partition), 0)

    def _with_own_keys(self, values: Mapping[int, Sequence[str]]) -> dict[int, list[NewRecord]]:
        now_ms = self._context.wall_ms()
        return {partition: records_of(some, now_ms) for partition, some in values.items()}

    async def _add_partition(self, topic: str, partition: int) -> None:
        if (topic, partition) in self._added:
            return
        if self.version < _WITH_EPOCH_BUMP:
            producer_id, epoch = self.producer
            fields = {
                "v3_and_below_transactional_id": self._transactional_id,
                "v3_and_below_producer_id": producer_id,
                "v3_and_below_producer_epoch": epoch,
                "v3_and_below_topics": [{"name": topic, "partitions": [partition]}],
            }
            request = Request(ApiKey.ADD_PARTITIONS_TO_TXN, _ADD_PARTITIONS, fields)
            answer = await self._ask_coordinator(*request, _partition_error_code)
            await self._repeat(request, answer, _partition_error_code)
        self._added[topic, partition] = None

    async def _produce(self, topic: str, records: Mapping[int, Sequence[NewRecord]]) -> None:
        version = 12 if self.version >= _WITH_EPOCH_BUMP else 11
        unacked = {partition: self._batch(topic, partition, some) for partition, some in records.items()}
        client = self._topic(topic)
        while True:
            await client.until_known()
            for leader in dict.fromkeys(client.partitions[partition].leader for partition in unacked):
                rows = {one: batch for one, batch in unacked.items() if client.partitions[one].leader == leader}
                fields = produce_fields(self._transactional_id, topic, rows)
                for partition, code in (await self._ask_leader(client, leader, version, fields, [*rows])).items():
                    if not self._is_acked(topic, partition, code):
                        continue
                    del unacked[partition]
                    count = len(records[partition])
                    self._sequences[topic, partition] = self.next_sequence(topic, partition) + count
                    if self._repeats is not None:
                        self._repeats.on_sent(SentTransactionalBatch(topic, partition, version, fields, self.producer))
            if not unacked:
                break
            await asyncio.sleep(_RETRY_PAUSE_S)
            await client.refresh()
        if self._repeats is not None:
            await self._repeats.send_old_batch(self._topic, self.producer)
            await self._repeats.end_former_transaction(self._coordinator_client(), self.producer)

    def _batch(self, topic: str, partition: int, records: Sequence[NewRecord]) -> bytes:
        return transactional_batch(records, self.producer, self.next_sequence(topic, partition))

    def _is_acked(self, topic: str, partition: int, code: ErrorCode) -> bool:
        """Whether a batch is acked; False if it is to be sent again."""
        draw = self._context.rng.random
        if code == ErrorCode.NETWORK_EXCEPTION and self._gives_up_batches and draw() < 0.4:
            raise AbortableError(f"{self.name} gives up a batch to {topic}-{partition}")
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            return True
        if code in _NOT_HERE and self._is_easily_put_off and draw() < _PUT_OFF_PROBABILITY:
            raise AbortableError(f"{self.name} finds no {topic}-{partition}")
        self._judge(code, f"produce to {topic}-{partition}")
        return False

    async def _ask_leader(
        self, client: TopicClient, leader: int, version: int, fields: Mapping[str, Any], partitions: Sequence[int]
    ) -> dict[int, ErrorCode]:
        client.cluster.timeout_s = self._patience_s(self._gives_up_batches)
        try:
            answer = await client.cluster.request_node(leader, ApiKey.PRODUCE, version, fields)
        except NO_ANSWER:
            self.lost_batches += 1
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        return {row.index: ErrorCode(row.error_code) for row in answer.responses[0].partition_responses}

    # ---------------------------------------------------------------- offsets

    async def send_offsets(
        self, group: str, topic: str, offsets: Mapping[int, int], member: GroupMember = _NO_MEMBER
    ) -> None:
        """Commit a group's offsets of a topic in the transaction."""
        if self.version < _WITH_EPOCH_BUMP and group not in self._added:
            request = Request(ApiKey.ADD_OFFSETS_TO_TXN, _ADD_OFFSETS, {**self._who(), "group_id": group})
            answer = await self._ask_coordinator(*request, _error_code)
            await self._repeat(request, answer, _error_code)
        self._added[group] = None
        partitions = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
            for index, offset in offsets.items()
        ]
        who = {"generation_id": member.generation, "member_id": member.member_id, "group_instance_id": None}
        fields = {**self._who(), "group_id": group, **who, "topics": [{"name": topic, "partitions": partitions}]}
        request = Request(ApiKey.TXN_OFFSET_COMMIT, 5 if self.version >= _WITH_EPOCH_BUMP else 3, fields)
        answer = await self._ask((GROUP_KEY, group), *request, _commit_error_code)
        await self._repeat(request, answer, _commit_error_code, (GROUP_KEY, group))

    async def fetch_offsets(self, group: str, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """The group's committed offsets; waits while one of them is pending in a transaction (KIP-447)."""
        wanted = {"group_id": group, "member_id": None, "member_epoch": -1}
        row = {**wanted, "topics": [{"name": topic, "partition_indexes": list(partitions)}]}

        def code_of(answer: Struct) -> int:
            found = answer.groups[0]
            rows = [one for each in found.topics for one in each.partitions]
            return int(found.error_code or next((one.error_code for one in rows if one.error_code), 0))

        fields = {"groups": [row], "require_stable": True}
        answer = await self._ask((GROUP_KEY, group), ApiKey.OFFSET_FETCH, 9, fields, code_of)
        return {one.partition_index: max(0, one.committed_offset) for one in answer.groups[0].topics[0].partitions}

    # ---------------------------------------------------------------- requests

    async def _ask_coordinator(
        self, api: ApiKey, version: int, fields: Mapping[str, Any], code_of: Callable[[Struct], int]
    ) -> Struct:
        return await self._ask((TRANSACTION_KEY, self._transactional_id), api, version, fields, code_of)

    async def _ask(
        self,
        key: tuple[int, str],
        api: ApiKey,
        version: int,
        fields: Mapping[str, Any],
        code_of: Callable[[Struct], int],
    ) -> Struct:
        """Ask a coordinator until the answer is definite; returns it if it is no error."""
        cluster = self._topic(self._context.topic).cluster
        while True:
            try:
                address = self._coordinators.get(key)
                if address is None:
                    address = self._coordinators[key] = await self.find_coordinator(key)
                cluster.timeout_s = self._patience_s(self._is_impatient)
                answer = await cluster.request_at(address, api, version, fields)
                code = ErrorCode(code_of(answer))
            except (ClientError, *NO_ANSWER):
                code = ErrorCode.NETWORK_EXCEPTION
            if not code:
                return answer
            self.lost_answers += code in _DOUBTFUL
            if code in (ErrorCode.NETWORK_EXCEPTION, *MOVED):
                self._coordinators.pop(key, None)
            if code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                self._judge(code, f"{api.name} {version}")
            await asyncio.sleep(_RETRY_PAUSE_S)

    async def _repeat(
        self,
        request: Request,
        first: Struct,
        code_of: Callable[[Struct], int],
        key: tuple[int, str] | None = None,
    ) -> None:
        """Send a request again whose answer was `first`, if this producer does so now."""
        if self._repeats is not None:
            await self._repeats.repeat(self._coordinator_client(key), request, first, code_of, self.producer)

    def _coordinator_client(self, key: tuple[int, str] | None = None) -> Ask:
        """Sends one request to the coordinator of a key, the producer's own by default."""
        key = key or (TRANSACTION_KEY, self._transactional_id)

        async def ask(request: Request) -> Struct:
            address = self._coordinators.get(key)
            if address is None:
                address = self._coordinators[key] = await self.find_coordinator(key)
            cluster = self._topic(self._context.topic).cluster
            cluster.timeout_s = _TIMEOUT_S
            try:
                return await cluster.request_at(address, *request)
            except NO_ANSWER:
                self._coordinators.pop(key, None)
                raise

        return ask

    def _patience_s(self, is_impatient: bool) -> float:
        return self._context.rng.choice(_SHORT_TIMEOUTS_S) if is_impatient else _TIMEOUT_S

    async def find_coordinator(self, key: tuple[int, str]) -> tuple[str, int]:
        """The address of a coordinator, as one broker says. Raises `ClientError`."""
        cluster = self._topic(self._context.topic).cluster
        at = self._context.rng.choice(cluster.bootstrap) if self._asks_any_broker else None
        row = await find_coordinator(cluster, key[1], key_type=key[0], at=at)
        return row.host, row.port

    def _judge(self, code: ErrorCode, what: str) -> None:
        """Return for an error that a repetition may mend; raise otherwise."""
        if code in _FENCED:
            raise FencedError(f"{self.name} {what}: {code.name}")
        if code in _ABORTABLE:
            raise AbortableError(f"{self.name} {what}: {code.name}")
        if not _is_temporary(code):
            detail = f"{self.name} {what}: {code.name}"
            raise InvariantBroken("a transactional producer is answered what its protocol allows", detail)


def _error_code(answer: Struct) -> int:
    return int(answer.error_code)


def _partition_error_code(answer: Struct) -> int:
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def _commit_error_code(answer: Struct) -> int:
    return next((row.error_code for row in answer.topics[0].partitions if row.error_code), 0)
