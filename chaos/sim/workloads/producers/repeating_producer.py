"""An idempotent producer that sends batches again which were acked long ago, as requests that are late on their way.

None of them may be written a second time, and the answer names the offset where the batch is, if any.
"""

from __future__ import annotations

from collections import deque

from .....cluster.client.client_errors import is_retriable
from .....cluster.client.cluster_client import NO_ANSWER
from .....wire.errors import ErrorCode
from ...invariants.invariant_broken import InvariantBroken
from ..clients import ClientContext, IdempotentProducer, ProduceAnswer, SentBatch

_KEPT_MAX = 12
_REMEMBERED = 5
"""Brokers know again the last five batches of a producer."""


class RepeatingProducer(IdempotentProducer):
    """Keeps its last batches; who extends it says when one of them is sent again."""

    def __init__(self, context: ClientContext, name: str, pause_s: float) -> None:
        super().__init__(context, name, pause_s)
        self.forgotten_before: dict[int, int] = {}
        """By partition, the number of the record before which the batches may be forgotten."""
        self._acked: dict[int, deque[SentBatch]] = {}
        """The last batches by partition."""

    def on_acked(self, partition: int, batch: SentBatch, answer: ProduceAnswer) -> None:
        """See `IdempotentProducer`; the last batches are kept to be sent again."""
        super().on_acked(partition, batch, answer)
        self._acked.setdefault(partition, deque(maxlen=_KEPT_MAX)).append(batch)

    async def repeat(self, partition: int) -> None:
        """Send a batch again of those that were acked, once, while none waits for its ack."""
        acked = self._acked.get(partition)
        if not acked:
            return
        index = self.context.rng.randrange(len(acked))
        batch = acked[index]
        is_remembered = len(acked) - index <= _REMEMBERED and batch.first >= self.forgotten_before.get(partition, 0)
        try:
            connection = await self._client.cluster.connection(self._client.partitions[partition].leader)
        except NO_ANSWER:
            return
        answer = await self._answer(self._send(connection, partition, batch))
        code, base_offset = answer.code, answer.base_offset
        told = f"{self.name}/{partition}/{batch.first}: {ErrorCode(code).name} at {base_offset}"
        may_be_refused = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_remembered
        if code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if not (is_retriable(code) or may_be_refused):
                raise InvariantBroken("a batch that is there already is not refused", told)
            return
        known = self.context.history.acked.get((partition, self.name, batch.first), -1)
        if base_offset >= 0 and known not in (-1, base_offset):
            raise InvariantBroken("a batch that is sent again is where it was", f"{told}, it was at {known}")
