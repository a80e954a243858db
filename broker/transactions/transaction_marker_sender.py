"""Sends the markers of transactions that are ending to the leaders of their partitions.

One request to a broker takes all markers that wait for it. Up to `REQUESTS_PER_BROKER` requests to a broker are under
way, so a single marker need not wait for the ones before it, and many share a request. What was not written is tried
again after a pause, at the leaders of that time: the transaction ends only when every partition has its marker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ...controller.metadata.metadata_image import MetadataDelta, MetadataImage
from ...controller.metadata.metadata_loader import MetadataLoader
from ...runtime.invariants import sometimes
from ...runtime.loop import TaskSet
from ...wire.api_keys import ApiKey
from ...wire.errors import ErrorCode, WireFormatError
from ...wire.types import TopicPartition
from ..log_limiter import LogLimiter
from ..to_brokers.broker_channels import Channels
from .marker_queues import Batch, Ending, MarkerQueues, Nobody, request_fields, response_codes, split

logger = logging.getLogger("raftwerk.transactions")

WRITE_TXN_MARKERS_VERSION = 2
REQUESTS_PER_BROKER = 5
TIMEOUT_MS = 35_000
"""The leader answers within `request.timeout.ms`, which is 30 seconds."""
RETRY_S = 0.1


class TransactionMarkerSender:
    """`on_marked(ending, partitions)` is called with the partitions that have their markers, or are gone."""

    def __init__(
        self,
        channels: Channels,
        metadata: MetadataLoader,
        on_marked: Callable[[Ending, Sequence[TopicPartition]], None],
    ) -> None:
        self._channels = channels
        self._metadata = metadata
        self._on_marked = on_marked
        self._queues = MarkerQueues(self._leader_of)
        self._under_way: dict[int, int] = {}
        self._tasks = TaskSet()
        self._coordinated: dict[int, int] = {}
        """The leader epochs of the partitions whose markers are sent."""
        self._again: Batch = {}
        self._retry: asyncio.TimerHandle | None = None
        self._limiter = LogLimiter()

    def send(self, ending: Ending, partitions: Sequence[TopicPartition]) -> None:
        """Write the marker to these partitions."""
        self._coordinated[ending.coordinator_partition] = ending.marker.coordinator_epoch
        self._add(ending, partitions)
        self._send_waiting()

    def drop(self, coordinator_partition: int) -> None:
        """Another broker coordinates the partition's transactions: it writes their markers."""
        self._coordinated.pop(coordinator_partition, None)
        self._queues.drop(coordinator_partition)

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Markers that wait for a leader may have one now."""
        if delta.changed_partitions or delta.deleted_topics:
            self._route_again(self._queues.take(Nobody.NO_LEADER))

    def close(self) -> None:
        """Send no more."""
        if self._retry is not None:
            self._retry.cancel()
        self._tasks.cancel_soon()

    def _leader_of(self, topic_partition: TopicPartition) -> int:
        topic = self._metadata.image.topics_by_name.get(topic_partition.topic)
        registration = None if topic is None else topic.partitions.get(topic_partition.partition)
        if registration is None:
            return Nobody.GONE
        return registration.leader if registration.leader >= 0 else Nobody.NO_LEADER

    def _is_current(self, ending: Ending) -> bool:
        return self._coordinated.get(ending.coordinator_partition) == ending.marker.coordinator_epoch

    def _add(self, ending: Ending, partitions: Sequence[TopicPartition]) -> None:
        gone = self._queues.add(ending, partitions)
        if gone:
            # The caller goes on with its own work first: the end of a transaction may be what it is in the middle of.
            asyncio.get_running_loop().call_soon(self._marked, ending, gone)

    def _marked(self, ending: Ending, partitions: Sequence[TopicPartition]) -> None:
        if self._is_current(ending):
            self._on_marked(ending, partitions)

    def _send_waiting(self) -> None:
        for broker_id in self._queues.brokers:
            if self._under_way.get(broker_id, 0) < REQUESTS_PER_BROKER:
                self._under_way[broker_id] = self._under_way.get(broker_id, 0) + 1
                self._tasks.spawn(self._send(broker_id, self._queues.take(broker_id)), name="transaction markers")

    async def _send(self, broker_id: int, batch: Batch) -> None:
        codes: dict[tuple[int, TopicPartition], ErrorCode] | None = None
        try:
            response = await self._channels.request(
                broker_id,
                ApiKey.WRITE_TXN_MARKERS,
                WRITE_TXN_MARKERS_VERSION,
                request_fields(batch),
                timeout_ms=TIMEOUT_MS,
            )
            codes = response_codes(response)
        except (OSError, WireFormatError) as error:
            self._log(f"broker {broker_id}", "cannot write markers", str(error) or type(error).__name__)
        except Exception:  # whatever it is, the markers are to be sent again, or these transactions would never end
            self._finish(broker_id, batch, None)
            raise
        self._finish(broker_id, batch, codes)

    def _finish(self, broker_id: int, batch: Batch, codes: dict[tuple[int, TopicPartition], ErrorCode] | None) -> None:
        self._under_way[broker_id] -= 1
        for ending, partitions in batch.items():
            if not self._is_current(ending):
                sometimes(True, "markers were answered after their coordinator had resigned")
                continue
            if codes is None:
                sometimes(True, "markers did not reach a broker, and were sent again")
                self._again.setdefault(ending, {}).update(partitions)
                continue
            done, again = split(ending, partitions, codes)
            if again:
                sometimes(True, "a partition did not take a marker, which was sent again")
                self._again.setdefault(ending, {}).update(dict.fromkeys(again))
                one, code = next(iter(again.items()))
                self._log(f"{one}", f"no marker yet: {code.name}", f"of transactional id {ending.transactional_id}")
            if done:
                self._on_marked(ending, done)
        if self._again and self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)
        self._send_waiting()

    def _try_again(self) -> None:
        self._retry = None
        again, self._again = self._again, {}
        self._route_again(again)

    def _route_again(self, batch: Batch) -> None:
        for ending, partitions in batch.items():
            if self._is_current(ending):
                self._add(ending, list(partitions))
        self._send_waiting()

    def _log(self, who: str, event: str, details: str) -> None:
        if self._limiter.should_log(who, event, asyncio.get_running_loop().time()):
            logger.info("%s: %s: %s", who, event, details)
