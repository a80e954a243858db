"""Lists and describes transactions, finds those that hang, and aborts them (KIP-664).

A transaction hangs when a partition has it open and its coordinator does not: nobody will end it, and consumers with
`read_committed` wait at its first record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, TypeAlias, TypeVar

from ....wire.api_keys import ApiKey
from ....wire.codec import Struct
from ....wire.errors import ErrorCode
from ....wire.types import TopicPartition, by_topic
from ..access.needed_rights import Asked
from ..client_errors import NO_LEADER, ClientError, RefusedError, SilentNodesError, is_retriable, sentences_by_reason
from ..cluster_client import NO_ANSWER, NOTICE_AFTER_S, ClusterClient, Gathered
from ..peer_protocol import no_answer_reason, silent_broker
from .producer_transactions import ProducerTransactions

HANGS_AFTER_S = 900
"""How old the last record of a transaction is, where nothing else is asked for, before it may be said to hang."""
_DESCRIBE_PRODUCERS_VERSION = 0
_DESCRIBE_TRANSACTIONS_VERSION = 0
_WRITE_TXN_MARKERS_VERSION = 1
_OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
_STATE_TOPIC = "__transaction_state"
_RETRY_PAUSE_S = 0.1
_NOBODY = -1
"""The leader of a partition without one."""
_PARTITIONS_PER_REQUEST = 1_000
_NO_COORDINATOR_YET = "a partition of __transaction_state has no coordinator at present"

_logger = logging.getLogger("raftwerk.cluster.client")

T = TypeVar("T")
_Unseen: TypeAlias = dict[TopicPartition, str]
"""Partitions of which nothing is known, with the reason."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id, as ListTransactions reports it."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int

    def as_row(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TransactionView:
    """A transactional id, as its coordinator knows it. `start_ms` is -1 when no transaction is open."""

    transactional_id: str
    state: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]

    def as_row(self) -> dict[str, Any]:
        """The fields by name, for JSON; `start_ms` is None when no transaction is open."""
        return asdict(self) | {
            "start_ms": self.start_ms if self.start_ms >= 0 else None,
            "partitions": [{"topic": topic, "partition": index} for topic, index in sorted(self.partitions)],
        }


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that the leader of a partition has open. `last_timestamp_ms` is that of its last batch."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int

    def as_row(self) -> dict[str, Any]:
        """What identifies it, by name, for JSON."""
        topic, partition = self.partition
        return {
            "topic": topic,
            "partition": partition,
            "start_offset": self.start_offset,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "last_timestamp_ms": self.last_timestamp_ms,
        }


class TransactionClient:
    """Asks transaction coordinators and the leaders of partitions.

    A request is repeated for `timeout_s` seconds, by default the time-out of the client, while they move.
    """

    def __init__(self, client: ClusterClient, timeout_s: float | None = None) -> None:
        self._client = client
        self._timeout_s = client.timeout_s if timeout_s is None else timeout_s

    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        older_than_ms: int = -1,
        pattern: str | None = None,
    ) -> Gathered[TransactionListing]:
        """The transactional ids of every coordinator that pass the filters.

        Those of partitions without a leader are missing: nobody coordinates them. Raises `RefusedError` for a state
        that is none, or a pattern that is no regular expression.
        """
        version = 2 if pattern is not None else 1 if older_than_ms >= 0 else 0
        fields: dict[str, Any] = {"state_filters": list(states), "producer_id_filters": list(producer_ids)}
        if version >= 1:
            fields["duration_filter"] = older_than_ms
        if version >= 2:
            fields["transactional_id_pattern"] = pattern

        async def ask(broker: int) -> list[TransactionListing]:
            answer = await self._list_of(broker, version, fields)
            if answer.unknown_state_filters:
                text = f"{', '.join(answer.unknown_state_filters)} is not a state of a transaction"
                raise RefusedError(ErrorCode.INVALID_REQUEST, "the filter", text)
            return [
                TransactionListing(one.transactional_id, one.transaction_state, one.producer_id, broker)
                for one in answer.transaction_states
            ]

        brokers = (await self._client.metadata([])).brokers
        what = "the transactional ids that it coordinates"
        found = await self._client.gather([one.node_id for one in brokers], ask, what)
        leaderless = await self._client.without_leader(_STATE_TOPIC, "their transactional ids")
        return Gathered(sorted(found.rows, key=lambda one: one.transactional_id), found.missing + leaderless)

    async def describe(self, transactional_id: str) -> TransactionView:
        """The state of a transactional id. Raises `RefusedError` when there is no such id."""
        found = (await self.describe_all([transactional_id])).get(transactional_id)
        if found is None:
            raise RefusedError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id}")
        return found

    async def describe_all(self, ids: Sequence[str]) -> dict[str, TransactionView]:
        """The states of these transactional ids, by id; without those that do not exist.

        All brokers are asked, since FindCoordinator would create the topic. One that does not answer is passed over: if
        it was a coordinator, another one takes its place.
        """
        if not ids or not await self._client.may_have_topic(_STATE_TOPIC):
            return {}
        silent: list[ClientError] = []

        async def ask() -> dict[str, TransactionView] | None:
            found: dict[str, TransactionView] = {}
            missing: set[str] = set()
            silent.clear()
            for broker in (await self._client.metadata([])).brokers:
                fields = {"transactional_ids": list(ids)}
                api = ApiKey.DESCRIBE_TRANSACTIONS
                try:
                    answer = await self._request(broker.node_id, api, _DESCRIBE_TRANSACTIONS_VERSION, fields)
                except ClientError as error:
                    silent.append(error)
                    continue
                for row in answer.transaction_states:
                    if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                        missing.add(row.transactional_id)
                    elif not row.error_code:
                        found[row.transactional_id] = _view(row, broker.node_id)
                    elif not is_retriable(row.error_code):
                        asked = Asked(api, transactional_id=row.transactional_id)
                        raise RefusedError(row.error_code, f"transactional id {row.transactional_id!r}", asked=asked)
            return found if missing | set(found) >= set(ids) else None

        try:
            return await self._retry(ask, _NO_COORDINATOR_YET)
        except RefusedError:
            raise
        except ClientError:
            if silent:
                raise silent[0] from None
            raise

    async def open_transactions(self, topic: str | None = None) -> list[OpenTransaction]:
        """The transactions that are open in the topic, or anywhere, in order of their partitions.

        Partitions without a leader are left out.
        """
        return await self._open_in(await self._partitions_of(topic))

    async def find_hanging(self, before_ms: int, topic: str | None = None) -> Gathered[OpenTransaction]:
        """The open transactions that their coordinator does not know and whose last batch is older than a time.

        `before_ms` is milliseconds since 1970; batches carry the time of their producers' clocks. The partitions are
        asked before and after the coordinators, so that a transaction that ends meanwhile is not taken for one that
        hangs. Those of partitions for which no leader answers are missing; where a coordinator does not answer, all
        are. Source: TransactionsCommand.FindHangingTransactionsCommand.
        """
        places = await self._partitions_of(topic)
        opened, unseen = await self._look_in(places)
        old = [one for one in opened if one.last_timestamp_ms < before_ms]
        try:
            unknown = await self._without_coordinator(old)
        except SilentNodesError as error:
            return Gathered([], [*_unseen_sentences(unseen), error.silence])
        opened, unseen_again = await self._look_in([one.partition for one in unknown])
        return Gathered([one for one in unknown if one in opened], _unseen_sentences(unseen | unseen_again))

    async def long_open(self, older_than_ms: int) -> list[tuple[TransactionView, list[OpenTransaction]]]:
        """The transactions that their coordinators have had open for longer than a time, the oldest first.

        Each with its part in every partition where it has written, whose last stable offset stands still there. Those
        that have written nothing are left out.
        """
        listed = (await self.list_transactions(states=_OPEN_STATES, older_than_ms=older_than_ms)).whole()
        views = await self.describe_all([one.transactional_id for one in listed])
        parts = await self._open_in({partition for view in views.values() for partition in view.partitions})
        found = [(view, [one for one in parts if one.producer_id == view.producer_id]) for view in views.values()]
        return sorted((row for row in found if row[1]), key=lambda row: row[0].start_ms)

    async def terminate(self, transactional_id: str) -> TransactionView:
        """Abort the open transaction of a transactional id, and fence its producer. Returns its state before that.

        Raises `RefusedError` when there is no such id. Source: Admin.forceTerminateTransaction (KIP-939).
        """
        view = await self.describe(transactional_id)
        await ProducerTransactions(self._client, self._timeout_s).init_producer_id(transactional_id, view.timeout_ms)
        return view

    async def abort(self, partition: TopicPartition, start_offset: int, *, force: bool = False) -> OpenTransaction:
        """Abort the open transaction that begins at this offset, in this one partition, and return it.

        Raises `ClientError` when there is none, and when the coordinator knows the transaction, unless `force`.
        """
        rows = (await self._client.metadata([partition.topic])).topic(partition.topic).partitions
        if not any(row.partition == partition.partition for row in rows):
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
        if not await self._leaders([partition]):
            raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, str(partition))
        at_offset = [one for one in await self._open_in([partition]) if one.start_offset == start_offset]
        if not at_offset:
            text = f"no transaction is open in {partition} from offset {start_offset} on"
            raise ClientError(f"{text}; raftwerk transactions find-hanging shows the offsets")
        (found,) = at_offset
        if not force and not await self._without_coordinator([found]):
            text = f"the coordinator knows the transaction from offset {start_offset} on in {partition} and will end it"
            raise ClientError(f"{text}; an abort in one partition would tear it, and --force does it all the same")
        await self._write_abort(found)
        return found

    # ---------------------------------------------------------------- asking

    async def _list_of(self, node_id: int, version: int, fields: Mapping[str, Any]) -> Struct:
        async def ask() -> Struct | None:
            answer = await self._client.request_node(node_id, ApiKey.LIST_TRANSACTIONS, version, fields)
            if answer.error_code and not is_retriable(answer.error_code):
                is_pattern = answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
                text = "the pattern is not a valid regular expression" if is_pattern else None
                raise RefusedError(answer.error_code, "the filter", text)
            return None if answer.error_code else answer

        return await self._retry(ask, f"broker {node_id} is still loading its part of {_STATE_TOPIC}")

    async def _without_coordinator(self, transactions: Sequence[OpenTransaction]) -> list[OpenTransaction]:
        """Those that no coordinator has open in their partitions."""
        if not transactions:
            return []
        await self._retry(self._all_coordinators_lead, _NO_COORDINATOR_YET)
        listed = (await self.list_transactions(producer_ids=sorted({one.producer_id for one in transactions}))).whole()
        views = await self.describe_all([one.transactional_id for one in listed])
        known = {(view.producer_id, partition) for view in views.values() for partition in view.partitions}
        return [one for one in transactions if (one.producer_id, one.partition) not in known]

    async def _all_coordinators_lead(self) -> bool | None:
        topics = (await self._client.metadata([_STATE_TOPIC])).topics
        return True if all(row.leader >= 0 for topic in topics for row in topic.partitions) else None

    async def _partitions_of(self, topic: str | None) -> list[TopicPartition]:
        view = await self._client.metadata(None if topic is None else [topic])
        topics = view.topics if topic is None else (view.topic(topic),)
        return [TopicPartition(one.name, row.partition) for one in topics for row in one.partitions]

    async def _open_in(self, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
        """The open transactions there; those of partitions without a leader are left out."""
        found, unseen = await self._look_in(partitions)
        silences = {one: reason for one, reason in unseen.items() if reason != NO_LEADER}
        if silences:
            raise SilentNodesError("; ".join(_unseen_sentences(silences)))
        return found

    async def _look_in(self, partitions: Iterable[TopicPartition]) -> tuple[list[OpenTransaction], _Unseen]:
        """The open transactions there, in order of their partitions, and why no leader answers for some of these.

        After the time-out a broker is still asked for what it began to lead meanwhile.
        """
        found: list[OpenTransaction] = []
        unseen = dict.fromkeys(partitions, NO_LEADER)
        now = self._client.throttling.unthrottled_time
        limit_s = min(self._timeout_s, self._client.leader_wait_s)
        deadline, told_at = now() + limit_s, now() + NOTICE_AFTER_S
        asked: dict[int, set[TopicPartition]] = {}
        while True:
            leaders = await self._by_leader(unseen)
            leaderless = leaders.pop(_NOBODY, [])
            unseen = dict.fromkeys(leaderless, NO_LEADER) | {one: unseen[one] for one in chain(*leaders.values())}
            are_asked = all(asked.get(one, set()).issuperset(led) for one, led in leaders.items())
            if not leaders or (are_asked and now() > deadline):
                return sorted(found, key=lambda one: (one.partition, one.start_offset)), unseen
            for node_id, led in leaders.items():
                asked.setdefault(node_id, set()).update(led)
            for answer, reasons in await asyncio.gather(*(self._look_at(*one) for one in leaders.items())):
                found += chain(*answer.values())
                unseen = {one: reasons.get(one, why) for one, why in unseen.items() if one not in answer}
            if told_at <= now() < deadline and len(unseen) > len(leaderless):
                told_at = deadline
                why = "; ".join(sentences_by_reason(_by_name(unseen)))
                _logger.warning("%s; asking again for up to %g s", why, limit_s)
            if unseen:
                await asyncio.sleep(_RETRY_PAUSE_S)

    async def _look_at(
        self, node_id: int, led: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, list[OpenTransaction]], _Unseen]:
        """The open transactions by partition that a leader tells, and why it tells none of the other partitions."""
        found: dict[TopicPartition, list[OpenTransaction]] = {}
        who = self._client.broker_text(node_id)
        for start in range(0, len(led), _PARTITIONS_PER_REQUEST):
            try:
                found |= await self._describe_producers(node_id, led[start : start + _PARTITIONS_PER_REQUEST])
            except NO_ANSWER as error:
                return found, {one: f"{who} {no_answer_reason(error)}" for one in led if one not in found}
        return found, {one: f"{who} leads it no longer" for one in led if one not in found}

    async def _leaders(self, wanted: Collection[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Those that have a leader, by its id, in the order of the metadata."""
        return {leader: led for leader, led in (await self._by_leader(wanted)).items() if leader != _NOBODY}

    async def _by_leader(self, wanted: Collection[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Those that exist, by the id of their leader, in the order of the metadata."""
        leaders: dict[int, list[TopicPartition]] = {}
        for topic in (await self._client.metadata(sorted({one.topic for one in wanted}))).topics:
            for row in topic.partitions:
                key = TopicPartition(topic.name, row.partition)
                if key in wanted:
                    leaders.setdefault(max(row.leader, _NOBODY), []).append(key)
        return leaders

    async def _describe_producers(
        self, node_id: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[OpenTransaction]]:
        """The open transactions by partition, without the partitions that the broker does not lead any more.

        Raises one of `NO_ANSWER` when it does not answer.
        """
        topics = [{"name": name, "partition_indexes": indexes} for name, indexes in by_topic(partitions).items()]
        answer = await self._client.request_node(
            node_id, ApiKey.DESCRIBE_PRODUCERS, _DESCRIBE_PRODUCERS_VERSION, {"topics": topics}
        )
        found: dict[TopicPartition, list[OpenTransaction]] = {}
        for topic in answer.topics:
            for row in topic.partitions:
                key = TopicPartition(topic.name, row.partition_index)
                if row.error_code and not is_retriable(row.error_code):
                    asked = Asked(ApiKey.DESCRIBE_PRODUCERS, topic=topic.name)
                    raise RefusedError(row.error_code, str(key), row.error_message, asked=asked)
                if not row.error_code:
                    found[key] = [_open(key, one) for one in row.active_producers if one.current_txn_start_offset >= 0]
        return found

    async def _write_abort(self, transaction: OpenTransaction) -> None:
        partition = transaction.partition
        marker = {
            "producer_id": transaction.producer_id,
            "producer_epoch": transaction.producer_epoch,
            "transaction_result": False,
            "topics": [{"name": partition.topic, "partition_indexes": [partition.partition]}],
            "coordinator_epoch": max(transaction.coordinator_epoch, 0),
        }

        async def ask() -> bool | None:
            for node_id in await self._leaders([partition]):
                api = ApiKey.WRITE_TXN_MARKERS
                answer = await self._request(node_id, api, _WRITE_TXN_MARKERS_VERSION, {"markers": [marker]})
                code = answer.markers[0].topics[0].partitions[0].error_code
                if code and not is_retriable(code):
                    raise RefusedError(code, str(partition), asked=Asked(api))
                return None if code else True
            return None

        await self._retry(ask, f"the leader of {partition} does not take the marker")

    async def _request(self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any]) -> Struct:
        try:
            return await self._client.request_node(node_id, api, version, fields)
        except NO_ANSWER as error:
            raise silent_broker(self._client.broker_text(node_id), error) from error

    async def _retry(self, ask: Callable[[], Awaitable[T | None]], why: str) -> T:
        """Ask until the answer is not None. Raises `ClientError` with `why` after the client's time-out."""
        deadline = self._client.throttling.unthrottled_time() + self._timeout_s
        while (answer := await ask()) is None:
            if self._client.throttling.unthrottled_time() > deadline:
                raise ClientError(f"{why}; try again in a moment, and if it stays so, raftwerk doctor shows why")
            await asyncio.sleep(_RETRY_PAUSE_S)
        return answer


def _unseen_sentences(unseen: _Unseen) -> list[str]:
    return [f"{one}, and its open transactions are missing" for one in sentences_by_reason(_by_name(unseen))]


def _by_name(unseen: _Unseen) -> dict[str, str]:
    return {str(one): why for one, why in sorted(unseen.items())}


def _open(partition: TopicPartition, row: Struct) -> OpenTransaction:
    return OpenTransaction(
        partition,
        row.producer_id,
        row.producer_epoch,
        row.coordinator_epoch,
        row.current_txn_start_offset,
        row.last_timestamp,
    )


def _view(row: Struct, coordinator: int) -> TransactionView:
    return TransactionView(
        row.transactional_id,
        row.transaction_state,
        coordinator,
        row.producer_id,
        row.producer_epoch,
        row.transaction_timeout,
        row.transaction_start_time,
        tuple(TopicPartition(topic.topic, index) for topic in row.topics for index in topic.partitions),
    )
