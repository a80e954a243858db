"""AddPartitionsToTxn: add partitions to a transaction before they are written to (KIP-98).

Versions 0 to 3 come from clients, with one transaction. From version 4 on, leaders of partitions send them for all
transactions of which they have a first batch (KIP-890): to verify that a partition belongs to the transaction, or, for
clients of `transaction.version` 2, to add it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ....runtime.incremental_work import PLAIN_STEP, Pace, Work, map_in_steps
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.codec import Rows
from ....wire.errors import ErrorCode, ProtocolError
from ....wire.types import TopicPartition
from ...api import Fields, Result
from ...network.request import Request
from ...quotas.throttling import EXEMPT
from ...services import BrokerServices
from ...transactions.transaction_coordinator import Waiter
from ...transactions.transaction_decisions import Producer
from ...transactions.transaction_metadata import EPOCH_BUMP_VERSION
from .transaction_requests import for_version

if TYPE_CHECKING:
    from ....wire.message_types.transactions import AddPartitionsToTxnRequest

FIRST_BATCHED_VERSION = 4
_PRODUCER_FENCED_SINCE = 2
_Codes: TypeAlias = dict[TopicPartition, ErrorCode]
_Begun: TypeAlias = "_Codes | Waiter"


class _Asked(NamedTuple):
    """What a request asks for one transaction: of a client, or of a broker."""

    transactional_id: str
    producer: Producer
    is_verification: bool
    is_of_client: bool
    topics: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]


def _transactions(version: int, message: AddPartitionsToTxnRequest) -> Iterator[_Asked]:
    if version < FIRST_BATCHED_VERSION:
        producer = Producer(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
        yield _Asked(message.v3_and_below_transactional_id, producer, False, True, message.v3_and_below_topics)
        return
    for one in message.transactions:
        producer = Producer(one.producer_id, one.producer_epoch)
        yield _Asked(one.transactional_id, producer, one.verify_only, False, one.topics)


def handle(services: BrokerServices, request: Request, message: AddPartitionsToTxnRequest) -> Work[Result]:
    """Each transaction is handled by itself: all of its partitions are added, or none."""
    if request.api_version >= FIRST_BATCHED_VERSION:
        services.authorization.check_cluster(request, AclOperation.CLUSTER_ACTION)
        request.throttle_ms = EXEMPT
    begun: list[tuple[str, list[TopicPartition], _Begun]] = []
    pace = Pace()
    for asked in _transactions(request.api_version, message):
        partitions: list[TopicPartition] = []
        for topic in asked.topics:
            partitions += yield from map_in_steps(partial(TopicPartition, topic.name), topic.partitions, pace)
            if pace.ends_step():
                yield PLAIN_STEP
        begun.append((asked.transactional_id, partitions, _begin(services, request, asked, partitions)))
        if pace.ends_step():
            yield PLAIN_STEP
    return _answer(request.api_version, begun)


def _begin(services: BrokerServices, request: Request, asked: _Asked, partitions: list[TopicPartition]) -> _Begun:
    """The error codes, or the write that decides them."""
    if not asked.transactional_id:
        return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
    denied: frozenset[str] = frozenset()
    rights = services.authorization
    if asked.is_of_client and rights.is_on:
        if not rights.is_allowed(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, asked.transactional_id):
            return dict.fromkeys(partitions, DENIED[ResourceType.TRANSACTIONAL_ID])
        names = {one.topic for one in partitions}
        denied = frozenset(names - rights.allowed(request, AclOperation.WRITE, ResourceType.TOPIC, names))
    topics = services.metadata.image.topics_by_name
    failed: _Codes = {}
    for one in partitions:
        if one.topic in denied:
            failed[one] = DENIED[ResourceType.TOPIC]
        elif (topic := topics.get(one.topic)) is None or one.partition not in topic.partitions:
            failed[one] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if failed:
        return dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | failed
    wanted = frozenset(partitions)
    try:
        if asked.is_verification:
            return services.transactions.verify_partitions(asked.transactional_id, asked.producer, wanted)
        if asked.is_of_client:
            added = services.transactions.add_partitions_of_client(asked.transactional_id, asked.producer, wanted)
            return asyncio.get_running_loop().create_task(added)
        # Brokers add partitions for clients of `transaction.version` 2.
        return services.transactions.add_partitions(asked.transactional_id, asked.producer, wanted, EPOCH_BUMP_VERSION)
    except ProtocolError as error:
        return dict.fromkeys(partitions, error.code)


async def _answer(version: int, begun: Sequence[tuple[str, list[TopicPartition], _Begun]]) -> Fields:
    results: list[tuple[str, _Codes]] = []
    for transactional_id, partitions, codes in begun:
        if isinstance(codes, asyncio.Future):
            answer = await codes
            codes = dict.fromkeys(partitions, for_version(answer.error, version, _PRODUCER_FENCED_SINCE))
        results.append((transactional_id, codes))
    return _response(version, results)


def _rows(codes: _Codes) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append({"partition_index": index, "partition_error_code": int(code)})
    return [{"name": name, "results_by_partition": rows} for name, rows in topics.items()]


def _response(version: int, results: Sequence[tuple[str, _Codes]]) -> Fields:
    if version < FIRST_BATCHED_VERSION:
        return {"results_by_topic_v3_and_below": _rows(results[0][1])}

    def row(result: tuple[str, _Codes]) -> Fields:
        return {"transactional_id": result[0], "topic_results": _rows(result[1])}

    return {"error_code": 0, "results_by_transaction": Rows(row, results)}


def error(message: AddPartitionsToTxnRequest, code: int, text: str) -> Fields:
    """From version 4 on the response as a whole has the error; below, every partition has it."""
    codes = {
        TopicPartition(topic.name, index): ErrorCode(code)
        for topic in message.get("v3_and_below_topics", ())
        for index in topic.partitions
    }
    return {"error_code": code, "results_by_transaction": [], "results_by_topic_v3_and_below": _rows(codes)}
