"""Transactions: listed, described, ended, and those that hang found and aborted."""

from __future__ import annotations

from typing import Any

from ...cluster.client.client_errors import ClientError
from ...cluster.client.cluster_client import ClusterClient
from ...cluster.client.transactions.transaction_client import TransactionClient
from ...runtime.ports import Clock
from ...wire.types import TopicPartition
from ..fields import INT64_MAX, Fields, is_to_execute, number, text


class TransactionActions:
    """Asks transaction coordinators and the leaders of partitions. Methods raise `ClientError` where these refuse."""

    def __init__(self, client: ClusterClient, clock: Clock) -> None:
        self._transactions = TransactionClient(client)
        self._clock = clock

    async def list(self) -> dict[str, Any]:
        """All transactional ids, and the coordinators that did not tell theirs."""
        found = await self._transactions.list_transactions()
        return {"transactions": [one.as_row() for one in found.rows], "missing": found.missing}

    async def describe(self, transactional_id: str) -> dict[str, Any]:
        """A transactional id, as its coordinator knows it."""
        return (await self._transactions.describe(transactional_id)).as_row()

    async def terminate(self, transactional_id: str, fields: Fields) -> dict[str, Any]:
        """Abort the open transaction of a transactional id, and fence its producer, if `execute` is true."""
        if not is_to_execute(fields):
            return {"executed": False, "before": await self.describe(transactional_id)}
        before = await self._transactions.terminate(transactional_id)
        return {"executed": True, "before": before.as_row()}

    async def hanging(self, older_than_s: int) -> dict[str, Any]:
        """The transactions that a partition has open, that no coordinator knows, and whose last record is so old.

        `missing` says of which partitions this is not known.
        """
        found = await self._transactions.find_hanging(self._clock.wall_ms() - older_than_s * 1000)
        return {"transactions": [one.as_row() for one in found.rows], "missing": found.missing}

    async def abort(self, fields: Fields) -> dict[str, Any]:
        """Abort the hanging transaction that begins at `start_offset` in `partition` of `topic`, if `execute` is true.

        One that its coordinator knows is refused.
        """
        partition = TopicPartition(text(fields, "topic"), number(fields, "partition"))
        start_offset = number(fields, "start_offset", at_most=INT64_MAX)
        if is_to_execute(fields):
            aborted = await self._transactions.abort(partition, start_offset)
            return {"executed": True, "transaction": aborted.as_row()}
        for one in await self._transactions.open_transactions(partition.topic):
            if (one.partition, one.start_offset) == (partition, start_offset):
                return {"executed": False, "transaction": one.as_row()}
        raise ClientError(f"no transaction is open in {partition} from offset {start_offset} on")
