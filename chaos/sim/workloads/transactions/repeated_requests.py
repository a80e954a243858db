"""Requests of a transactional producer that come twice, as after an answer that was lost.

"A repeated request has the answer of the first" (KIP-360, KIP-890), or it is refused because something else came
between: then the records of the transactional id say so. A coordinator that has loaded since then does not know any
more which epoch it gave last, and may fence who asks for it again. What belongs to a former transaction changes
nothing: an end with the epoch of the transaction before is refused while the next one is open, and so is an old batch.
That no batch is there twice is judged by the logs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER
from .....wire.api_keys import ApiKey
from .....wire.codec import Struct
from .....wire.errors import ErrorCode
from ...invariants.invariant_broken import InvariantBroken
from ..clients import ClientContext, TopicClient

_PROBABILITY = 0.3
_BATCH_PROBABILITY = 0.4
_KEPT_BATCHES = 12
_TRIES = 8
_RETRY_PAUSE_S = 0.05
_WITH_EPOCH_BUMP = 5
"""The version of EndTxn that gives the next epoch."""
_REFUSED_BY_STATE = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
)
"""Refusals that the records of the transactional id must explain."""


class Request(NamedTuple):
    """A request to a coordinator."""

    api: ApiKey
    version: int
    fields: Mapping[str, Any]


Ask: TypeAlias = Callable[[Request], Awaitable[Struct]]
"""Sends a request once. Raises `ClientError` and what is in `NO_ANSWER`."""


class SentTransactionalBatch(NamedTuple):
    """A Produce request with one batch, and the producer that it is of."""

    topic: str
    partition: int
    version: int
    fields: Mapping[str, Any]
    producer: tuple[int, int]


class RepeatedRequests:
    """Decides what one incarnation sends again, and judges the answers."""

    def __init__(self, context: ClientContext, name: str, transactional_id: str) -> None:
        self._context = context
        self._name = name
        self._transactional_id = transactional_id
        self._sent: deque[SentTransactionalBatch] = deque(maxlen=_KEPT_BATCHES)
        self._former_end: Request | None = None
        """The end of the transaction before, with the epoch that it had, if the end gave another one."""

    async def repeat(
        self, ask: Ask, request: Request, first: Struct, code_of: Callable[[Struct], int], producer: tuple[int, int]
    ) -> None:
        """Perhaps send a request again that was answered by `first`, since when the client is `producer`."""
        if request.api == ApiKey.END_TXN:
            self._former_end = request if request.version >= _WITH_EPOCH_BUMP else None
        if self._context.rng.random() >= _PROBABILITY:
            return
        checker = self._context.checker.transactions
        for _ in range(_TRIES):
            before = checker.explanation(self._transactional_id, producer)
            try:
                answer = await ask(request)
            except (ClientError, *NO_ANSWER):
                await asyncio.sleep(_RETRY_PAUSE_S)
                continue
            code = ErrorCode(code_of(answer))
            told = f"{self._name}, {request.api.name} {request.version} again: {code.name}"
            if not code:
                self._check_same(request.api, first, answer, told)
                return
            if code in _REFUSED_BY_STATE:
                after = checker.explanation(self._transactional_id, producer)
                if before is None and after is None and not self._is_stale_code(request, code):
                    raise InvariantBroken("a repeated request has the answer of the first", told)
                return
            await asyncio.sleep(_RETRY_PAUSE_S)

    @staticmethod
    def _is_stale_code(request: Request, code: ErrorCode) -> bool:
        """Whether a leader that is not the coordinator says so, which may not know yet what has come between."""
        return request.api == ApiKey.TXN_OFFSET_COMMIT and code != ErrorCode.PRODUCER_FENCED

    @staticmethod
    def _check_same(api: ApiKey, first: Struct, answer: Struct, told: str) -> None:
        if api not in (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN):
            return
        was = first.get("producer_id", -1), first.get("producer_epoch", -1)
        now = answer.get("producer_id", -1), answer.get("producer_epoch", -1)
        if was != now:
            raise InvariantBroken("a repeated request has the answer of the first", f"{told}, {now} instead of {was}")

    def on_sent(self, batch: SentTransactionalBatch) -> None:
        """A batch was acked."""
        self._sent.append(batch)

    async def send_old_batch(self, client_of: Callable[[str], TopicClient], producer: tuple[int, int]) -> None:
        """Perhaps send one of the last batches again, once. One of a former epoch must be refused."""
        if self._context.rng.random() >= _BATCH_PROBABILITY:
            return
        batch = self._context.rng.choice(self._sent)
        client = client_of(batch.topic)
        leader = client.partitions[batch.partition].leader
        try:
            answer = await client.cluster.request_node(leader, ApiKey.PRODUCE, batch.version, batch.fields)
        except NO_ANSWER:
            return
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if batch.producer != producer and code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            detail = f"{self._name}, {batch.producer} to {batch.topic}-{batch.partition}: {code.name}; now {producer}"
            raise InvariantBroken("a batch of a former epoch is refused", detail)

    async def end_former_transaction(self, ask: Ask, producer: tuple[int, int]) -> None:
        """Perhaps ask again for the end of the transaction before, while the next one is open and has a record."""
        former, self._former_end = self._former_end, None
        if former is None or self._context.rng.random() >= _PROBABILITY:
            return
        who = former.fields["producer_id"], former.fields["producer_epoch"]
        try:
            answer = await ask(former)
        except (ClientError, *NO_ANSWER):
            return
        if not answer.error_code and who != producer:
            state = self._context.checker.transactions.explanation(self._transactional_id, producer)
            if state is None:
                detail = f"{self._name}, the end of {who} again, while {producer} writes: {answer.error_code}"
                raise InvariantBroken("a former transaction is not ended while the next one is open", detail)
