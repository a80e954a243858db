"""The requests of a transactional producer, one by one, for programs that end a transaction which another has begun.

An ordinary application uses a producer. This is for a driver that ends the transactions of its tasks, in whichever
process it runs. The requests have the versions before KIP-890, as librdkafka's producers send them. Source: KIP-98,
KIP-360.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....wire.api_keys import ApiKey
from ....wire.codec import Struct
from ....wire.errors import ErrorCode
from ....wire.types import TopicPartition
from ..access.needed_rights import Asked
from ..client_errors import RefusedError
from ..cluster_client import ClusterClient
from ..group_client import GroupClient
from ..requests.coordinator_requests import CoordinatorRequests, CoordinatorType

_INIT_PRODUCER_ID_VERSION = 4
_ADD_OFFSETS_VERSION = 3
_TXN_OFFSET_COMMIT_VERSION = 3
_END_TXN_VERSION = 3
_OFFSET_FETCH_VERSION = 8
_RETRY_PAUSE_S = 0.05
_FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """What a coordinator knows a producer by."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset with its metadata."""

    offset: int
    metadata: str


class ProducerTransactions:
    """Asks the coordinators of transactional ids and groups.

    A request is repeated for `timeout_s` seconds while its coordinator moves, is loading, or does not answer.
    """

    def __init__(self, client: ClusterClient, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._throttling = client.throttling
        self._groups = GroupClient(client, timeout_s)
        self._coordinators = CoordinatorRequests(client, CoordinatorType.TRANSACTION, timeout_s)

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None = None
    ) -> ProducerIdAndEpoch:
        """InitProducerId: take over a transactional id, which fences its producer.

        Its open transaction is aborted, unless its commit or abort has begun, which is finished then.

        With `expected` only if the id still belongs to that producer. Raises `RefusedError` otherwise.
        """
        before = expected or ProducerIdAndEpoch(-1, -1)
        fields = {
            "transactional_id": transactional_id,
            "transaction_timeout": timeout_ms,
            "producer_id": before.producer_id,
            "producer_epoch": before.epoch,
        }
        answer = await self._ask(transactional_id, ApiKey.INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSION, fields)
        return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    async def commit_offsets(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Commit offsets of a group in the open transaction, which begins with the first. Raises `RefusedError`."""
        who = _who(transactional_id, producer) | {"group_id": group_id}
        await self._ask(transactional_id, ApiKey.ADD_OFFSETS_TO_TXN, _ADD_OFFSETS_VERSION, who)
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), one in offsets.items():
            row = {"partition_index": partition, "committed_offset": one.offset, "committed_metadata": one.metadata}
            topics.setdefault(topic, []).append(row)
        fields = who | {
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": topic, "partitions": rows} for topic, rows in topics.items()],
        }
        api = ApiKey.TXN_OFFSET_COMMIT
        answer = await self._groups.ask(group_id, api, _TXN_OFFSET_COMMIT_VERSION, fields, "topics")
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code:
                    asked = Asked(api, topic.name, group_id, transactional_id)
                    what = f"group {group_id}, {topic.name}-{row.partition_index}"
                    raise RefusedError(row.error_code, what, asked=asked)

    async def end_transaction(self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool) -> None:
        """Commit or abort the open transaction. To ask again for the same is no error. Raises `RefusedError`."""
        fields = _who(transactional_id, producer) | {"committed": commit}
        await self._ask(transactional_id, ApiKey.END_TXN, _END_TXN_VERSION, fields)

    async def offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """All committed offsets of a group with their metadata, once no open transaction commits some of them."""
        fields = {"groups": [{"group_id": group_id, "topics": None}], "require_stable": True}
        deadline = self._throttling.unthrottled_time() + self._timeout_s
        while True:
            answer = await self._groups.ask(group_id, ApiKey.OFFSET_FETCH, _OFFSET_FETCH_VERSION, fields, "groups")
            (group,) = answer.groups
            rows = [(topic.name, row) for topic in group.topics for row in topic.partitions]
            codes = {row.error_code for _, row in rows} - {0}
            if not codes and not group.error_code:
                return {
                    TopicPartition(topic, row.partition_index): OffsetAndMetadata(
                        row.committed_offset, row.metadata or ""
                    )
                    for topic, row in rows
                    if row.committed_offset >= 0
                }
            if codes != {ErrorCode.UNSTABLE_OFFSET_COMMIT} or self._throttling.unthrottled_time() > deadline:
                asked = Asked(ApiKey.OFFSET_FETCH, group=group_id)
                raise RefusedError(group.error_code or max(codes), f"group {group_id}", asked=asked)
            await asyncio.sleep(_RETRY_PAUSE_S)

    async def _ask(self, transactional_id: str, api: ApiKey, version: int, fields: Mapping[str, Any]) -> Struct:
        answer = await self._coordinators.ask(transactional_id, api, version, fields, lambda found: [found.error_code])
        if answer.error_code:
            asked = Asked(api, group=fields.get("group_id", ""), transactional_id=transactional_id)
            raise RefusedError(answer.error_code, f"transactional id {transactional_id}", asked=asked)
        return answer


def is_fenced(error: RefusedError) -> bool:
    """Whether the transaction is not this producer's any more: another has taken the id over, or it was aborted."""
    return error.code in _FENCED


def _who(transactional_id: str, producer: ProducerIdAndEpoch) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }
