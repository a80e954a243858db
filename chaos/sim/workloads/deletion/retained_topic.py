"""A topic with tiny segments that keeps its records by size or by time, while producers write and a consumer reads.

The start of each replica's log moves by its own retention, by its own clock, and follows the leader's. Every acked
record above the highest start is there, once and in order; what each node deletes is compared with the topic's settings
(`retention_rules`). Nobody is shown a record below the start of the log that he reads.
"""

from __future__ import annotations

import asyncio

from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER
from .....wire.errors import ErrorCode
from ...invariants.invariant_broken import InvariantBroken
from ...invariants.retention_rules import Retention
from ..clients import ClientContext
from .deleted_records import DeletedRecordsLoad

_PAUSE_S = 0.3


class RetainedTopicLoad(DeletedRecordsLoad):
    """Idempotent producers, a consumer, and a client that asks for what is deleted. A `Workload`."""

    name = "retained"

    def __init__(self, context: ClientContext) -> None:
        super().__init__(context)
        rng = context.rng
        size_bytes, time_ms = rng.randrange(1_000, 6_000), rng.randrange(500, 2_500)
        self.retention = rng.choice((Retention(size_bytes=size_bytes), Retention(time_ms=time_ms)))
        context.checker.retention.topics[context.topic] = self.retention

    @property
    def topic_configs(self) -> dict[str, str]:
        """See `DeletedRecordsLoad`."""
        size_bytes, time_ms = self.retention.size_bytes, self.retention.time_ms
        return {**super().topic_configs, "retention.bytes": str(size_bytes), "retention.ms": str(time_ms)}

    def deleted_below(self, partition: int) -> int:
        """See `DeletedRecordsLoad`."""
        return self.context.checker.retention.starts.get((self.client.topic_id, partition), 0)

    async def delete_records(self) -> None:
        """Nothing is deleted on request. Ask leaders for records that they have deleted."""
        rng, client = self.context.rng, self.client
        while not self.stopping:
            await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))
            view = rng.choice(client.partitions)
            try:
                await client.cluster.connection(view.leader)
                start = self.context.checker.log_start_offset(view.leader, (client.topic_id, view.partition))
                if not start:
                    continue
                offset = rng.randrange(start)
                code, records = await client.ask(view, view.leader_epoch, offset, max_wait_ms=0)
            except (ClientError, *NO_ANSWER):
                await client.refresh()
                continue
            if code == ErrorCode.NONE and records:
                detail = f"partition {view.partition} at {offset}: {view.leader} starts at {start}"
                raise InvariantBroken("nobody reads below the start of a log", detail)
            if code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
                await client.refresh()
