"""TxnOffsetCommit: store offsets of a group in a transaction. They take effect when it is committed (KIP-98, KIP-447).

The partition of `__consumer_offsets` is part of the transaction, so its coordinator is asked about it first, as for a
Produce request. From version 5 on the coordinator adds it, and no AddOffsetsToTxn comes before (KIP-890).
"""

from __future__ import annotations

import asyncio

from ....runtime.incremental_work import Pace, Work, map_in_steps
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....wire.codec import Struct
from ....wire.errors import ErrorCode, ProtocolError
from ....wire.types import TopicPartition
from ...api import Result
from ...coordinators.coordinator_partition_writer import ProducerTransaction, coordinator_error
from ...groups.group_config import OFFSETS_TOPIC
from ...groups.group_coordinator_shard import GroupCoordinatorShard
from ...groups.records.offset_and_classic_records import offset_record
from ...network.request import Request
from ...services import BrokerServices
from ...transactions.partition_verifier import TransactionalProducer, Verified, offset_commit_operation
from ..groups.group_requests import answer, check_group_id
from ..groups.offset_commit import error, offsets_to_write, with_code

__all__ = ["error", "handle"]

_NO_SEQUENCE = -1
FIRST_VERSION_THAT_KNOWS_LOADING = 2
"""Older clients may crash of COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""


def handle(services: BrokerServices, request: Request, message: Struct) -> Work[Result]:
    """Verify the transaction, check the member, write the offsets, and answer when they are committed."""
    groups, group_id, rights = services.groups, message.group_id, services.authorization
    rights.check(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id)
    rights.check(request, AclOperation.READ, ResourceType.GROUP, group_id)
    try:
        shard = groups.shard_of(check_group_id(group_id))
    except ProtocolError as refused:
        return error(message, int(_for_version(refused.code, request.api_version)), "")
    pace = Pace()
    by_partition, response = yield from offsets_to_write(services, request, message, pace)
    if not by_partition:
        return response
    values = by_partition.items()
    records = yield from map_in_steps(lambda item: offset_record(group_id, *item), values, pace)
    future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    partition = TopicPartition(OFFSETS_TOPIC, shard.partition)
    producer = TransactionalProducer(message.transactional_id, message.producer_id, message.producer_epoch)

    def finish(code: ErrorCode) -> None:
        if not future.done():
            future.set_result(_for_version(code, request.api_version))

    def verified(result: Verified) -> None:
        code = result.errors.get(partition, ErrorCode.NONE)
        try:
            current = groups.shard_of(group_id)
            if not code:
                code = _check_member(current, message)
        except ProtocolError as refused:
            code = refused.code
        if code:
            finish(_from_verification(code))
            return
        transaction = ProducerTransaction(producer.producer_id, producer.producer_epoch, result.guards.get(partition))
        groups.commit_in_transaction(current, transaction, group_id, values, records, finish)
        groups.watch_expiry()

    operation = offset_commit_operation(request.api_version)
    services.verifier.verify(producer, operation, {partition: _NO_SEQUENCE}, verified)
    return answer(future, lambda code: with_code(response, code))


def _check_member(shard: GroupCoordinatorShard, message: Struct) -> ErrorCode:
    if message.producer_id < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if message.producer_epoch < 0:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    generation = message.get("generation_id", -1)
    group = shard.groups.get(message.group_id)
    if group is None:
        if generation >= 0:
            return ErrorCode.ILLEGAL_GENERATION
        group = shard.new_classic(message.group_id)
    return group.check_transactional_commit(message.get("member_id", ""), message.get("group_instance_id"), generation)


def _from_verification(code: ErrorCode) -> ErrorCode:
    """The code of a transaction that could not be verified, in those that make a client send the request again."""
    if code == ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return coordinator_error(code, ErrorCode.UNKNOWN_SERVER_ERROR)


def _for_version(code: ErrorCode, version: int) -> ErrorCode:
    is_old = version < FIRST_VERSION_THAT_KNOWS_LOADING
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_old and code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code
