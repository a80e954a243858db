"""Appends whose records are looked into in a thread first, because that would hold the event loop for too long.

The batches of one sender for a partition are appended in the order in which they came: those that come after a
deferred one are deferred, too, until it is appended. Requests for other partitions overtake it, and so do those of
other senders: Apache Kafka keeps the order of one connection, too, and no other. Senders take turns in the threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ...log.config import LogConfig
from ...log.errors import RefusedRecordsError
from ...log.record_validation import RECORD_ERRORS_MAX
from ...log.state.transaction_verification import VerificationGuard
from ...log.validation import validate
from ...runtime.loop import report_error
from ...runtime.ports import ComputeThreads
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import TopicPartition

_logger = logging.getLogger(__name__)

Validated: TypeAlias = memoryview | ProtocolError
"""A partition's batches, ready to be appended, or why they are refused."""


class DeferredBatches(NamedTuple):
    """What is to be appended to one partition, the settings of its log, and the guard of a transactional batch."""

    topic_partition: TopicPartition
    topic_id: UUID
    records: memoryview
    config: LogConfig
    guard: VerificationGuard | None = None


class _DeferredRequest:
    """The deferred part of one request. It is appended at once, when all of it is validated and first in its queues."""

    __slots__ = ("append", "keys", "release", "sender", "validated")

    def __init__(
        self,
        sender: object,
        keys: Sequence[TopicPartition],
        append: Callable[[Sequence[Validated]], None],
        release: Callable[[], None] | None,
    ) -> None:
        self.sender = sender
        self.keys = keys
        self.append = append
        self.release = release
        self.validated: Sequence[Validated] | None = None


class DeferredAppends:
    """The requests that wait for their records to be validated, by sender and partition."""

    def __init__(self, threads: ComputeThreads) -> None:
        self._threads = threads
        self.queues: dict[object, dict[TopicPartition, deque[_DeferredRequest]]] = {}
        """What is to be appended before all that a sender sends now; one with nothing is missing, as are partitions."""

    def submit(
        self,
        batches: Sequence[DeferredBatches],
        now_ms: int,
        append: Callable[[Sequence[Validated]], None],
        sender: object = None,
        release: Callable[[], None] | None = None,
    ) -> None:
        """Validate the batches of one request in a thread, then call `append` with a result for each, and `release`.

        `now_ms` is the wall-clock time that the timestamps are compared with.
        """
        keys = list(dict.fromkeys(batch.topic_partition for batch in batches))
        request = _DeferredRequest(sender, keys, append, release)
        queues = self.queues.setdefault(sender, {})
        for key in keys:
            queues.setdefault(key, deque()).append(request)
        running = self._threads.run_soon(partial(_validate_all, batches, now_ms), sender)
        running.add_done_callback(partial(self._on_validated, request))

    def _on_validated(self, request: _DeferredRequest, done: asyncio.Future[list[Validated]]) -> None:
        if not done.cancelled():
            request.validated = done.result()
            self._append_what_is_ready(request)

    def _append_what_is_ready(self, request: _DeferredRequest) -> None:
        queues = self.queues[request.sender]
        candidates = deque((request,))
        while candidates:
            request = candidates.popleft()
            validated = request.validated
            if validated is None or any(queues[key][0] is not request for key in request.keys):
                continue
            request.validated = None  # it may be a candidate for several partitions
            for key in request.keys:
                queue = queues[key]
                queue.popleft()
                if queue:
                    candidates.append(queue[0])
                else:
                    del queues[key]
            if not queues:
                del self.queues[request.sender]
            try:
                request.append(validated)
            except Exception as error:  # those that wait behind it are appended all the same
                report_error("a deferred append failed", error)
            finally:
                if request.release is not None:
                    request.release()


def _validate_all(batches: Sequence[DeferredBatches], now_ms: int) -> list[Validated]:
    validated = []
    errors_left = RECORD_ERRORS_MAX
    for batch in batches:
        result = _validate_one(batch, now_ms)
        if isinstance(result, RefusedRecordsError):
            result.record_errors = result.record_errors[:errors_left]
            errors_left -= len(result.record_errors)
        validated.append(result)
    return validated


def _validate_one(batch: DeferredBatches, now_ms: int) -> Validated:
    try:
        return validate(batch.records, batch.config, now_ms)
    except ProtocolError as error:
        error.__cause__ = error.__context__ = None  # their frames hold what was decompressed
        return error.with_traceback(None)
    except Exception as error:
        _logger.exception("the records of a batch for %s could not be looked into", batch.topic_partition)
        return ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__} while the batch was validated")
