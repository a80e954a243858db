"""AddPartitionsToTxn: add partitions to a transaction before they are written to (KIP-98).

Versions 0 to 3 come from clients, with one transaction. From version 4 on, leaders of partitions send them for all
transactions of which they have a first batch (KIP-890): to verify that a partition belongs to the transaction, or, for
clients of `transaction.version` 2, to add it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ....runtime.incremental_work import PLAIN_STEP, Pace, Work, run_at_once
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
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


class _Begun(NamedTuple):
    """A transaction of the request, the codes of its partitions, and the outcome: see `_begin`."""

    transactional_id: str
    codes: _Codes
    outcome: ErrorCode | Waiter | None


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
    begun: list[_Begun] = []
    pace = Pace()
    for asked in _transactions(request.api_version, message):
        codes: _Codes = {}
        for topic in asked.topics:
            for partition in topic.partitions:
                codes[TopicPartition(topic.name, partition)] = ErrorCode.OPERATION_NOT_ATTEMPTED
                if pace.ends_step():
                    yield PLAIN_STEP
            if pace.ends_step():
                yield PLAIN_STEP
        outcome = yield from _begin(services, request, asked, codes, pace)
        begun.append(_Begun(asked.transactional_id, codes, outcome))
        if pace.ends_step():
            yield PLAIN_STEP
    return _answer(request.api_version, begun)


def _begin(
    services: BrokerServices, request: Request, asked: _Asked, codes: _Codes, pace: Pace
) -> Work[ErrorCode | Waiter | None]:
    """The error code of all partitions, or the write that decides it, or None where `codes` has those of each."""
    if not asked.transactional_id:
        return ErrorCode.INVALID_REQUEST
    denied: frozenset[str] = frozenset()
    rights = services.authorization
    if asked.is_of_client and rights.is_on:
        if not rights.is_allowed(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, asked.transactional_id):
            return DENIED[ResourceType.TRANSACTIONAL_ID]
        names = {topic.name for topic in asked.topics}
        denied = frozenset(names - rights.allowed(request, AclOperation.WRITE, ResourceType.TOPIC, names))
    topics = services.metadata.image.topics_by_name
    has_failed = False
    for one in codes:
        topic = topics.get(one.topic)
        if one.topic in denied:
            codes[one] = DENIED[ResourceType.TOPIC]
        elif topic is None or one.partition not in topic.partitions:
            codes[one] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        has_failed = has_failed or codes[one] != ErrorCode.OPERATION_NOT_ATTEMPTED
        if pace.ends_step():
            yield PLAIN_STEP
    if has_failed:
        return None
    wanted = frozenset(codes)
    try:
        if asked.is_verification:
            codes.update(services.transactions.verify_partitions(asked.transactional_id, asked.producer, wanted))
            return None
        if asked.is_of_client:
            added = services.transactions.add_partitions_of_client(asked.transactional_id, asked.producer, wanted)
            return asyncio.get_running_loop().create_task(added)
        # Brokers add partitions for clients of `transaction.version` 2.
        return services.transactions.add_partitions(asked.transactional_id, asked.producer, wanted, EPOCH_BUMP_VERSION)
    except ProtocolError as error:
        return error.code


async def _answer(version: int, begun: Sequence[_Begun]) -> Work[Fields]:
    results: list[tuple[str, _Codes, ErrorCode | None]] = []
    for transactional_id, codes, outcome in begun:
        if isinstance(outcome, asyncio.Future):
            code: ErrorCode | None = for_version((await outcome).error, version, _PRODUCER_FENCED_SINCE)
        else:
            code = outcome
        results.append((transactional_id, codes, code))
    return _response(version, results)


def _rows(codes: _Codes, code: ErrorCode | None = None) -> Work[list[dict[str, Any]]]:
    """The rows of the answer, with one code for all partitions or with that of each."""
    topics: dict[str, list[dict[str, int]]] = {}
    pace = Pace()
    for (topic, index), own in codes.items():
        row = {"partition_index": index, "partition_error_code": int(own if code is None else code)}
        topics.setdefault(topic, []).append(row)
        if pace.ends_step():
            yield PLAIN_STEP
    return [{"name": name, "results_by_partition": rows} for name, rows in topics.items()]


def _response(version: int, results: Sequence[tuple[str, _Codes, ErrorCode | None]]) -> Work[Fields]:
    rows = []
    for transactional_id, codes, code in results:
        topics = yield from _rows(codes, code)
        rows.append({"transactional_id": transactional_id, "topic_results": topics})
    if version < FIRST_BATCHED_VERSION:
        return {"results_by_topic_v3_and_below": rows[0]["topic_results"]}
    return {"error_code": 0, "results_by_transaction": rows}


def error(message: AddPartitionsToTxnRequest, code: int, text: str) -> Fields:
    """From version 4 on the response as a whole has the error; below, every partition has it."""
    codes = {
        TopicPartition(topic.name, index): ErrorCode(code)
        for topic in message.get("v3_and_below_topics", ())
        for index in topic.partitions
    }
    rows = run_at_once(_rows(codes))
    return {"error_code": code, "results_by_transaction": [], "results_by_topic_v3_and_below": rows}
