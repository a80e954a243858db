"""A consumer at read_committed in the simulator, which leaves out aborted records as Java's consumer does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .....cluster.client.client_errors import is_retriable
from .....cluster.client.cluster_client import NO_ANSWER, PartitionView
from .....isr.results import READ_COMMITTED
from .....wire.api_keys import ApiKey
from .....wire.errors import ErrorCode
from .....wire.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
    decode_fetch_response,
    encode_fetch_request,
)
from .....wire.records import AbortedTransactions, Record, iter_headers, iter_records, verify_crc
from ...invariants.invariant_broken import InvariantBroken
from ...invariants.transaction_invariants import Place
from ..clients import ClientContext, TopicClient

_FETCH_VERSION = 12
_BYTES_MAX = 1 << 20
_RETRY_PAUSE_S = 0.05
_TIMEOUT_S = 3.0


class CommittedReader:
    """Reads every partition of a topic from the beginning; `on_read` gets each record that is committed."""

    isolation_level = READ_COMMITTED

    def __init__(
        self, context: ClientContext, name: str, topic: str, on_read: Callable[[Place, int, str], None]
    ) -> None:
        self.positions: dict[int, int] = {}
        self.client = TopicClient(context, name)
        self.client.topic = topic
        self._context = context
        self._topic = topic
        self._on_read = on_read

    async def run(self) -> None:
        """Read; does not return."""
        await self.client.until_known()
        await asyncio.gather(*(self._read(each.partition) for each in self.client.partitions))

    def text_of(self, record: Record) -> str:
        """The text that is passed on of a record."""
        return bytes(record.value or b"").decode()

    def draw_bytes_max(self) -> int:
        """How many bytes of a partition to ask for."""
        return _BYTES_MAX

    async def pause(self, partition: int) -> None:
        """A fetch from a partition has been answered; wait before the next one."""

    def why_behind(self) -> str | None:
        """A partition of which it has not read everything that is committed; None if there is none."""
        for (topic_id, index), log in self._context.checker.committed.items():
            if topic_id == self.client.topic_id and self.positions.get(index, 0) < log.promised_end_offset:
                return f"{self._topic}-{index}: read to {self.positions.get(index, 0)} of {log.promised_end_offset}"
        return None

    async def _read(self, partition: int) -> None:
        self.positions[partition] = 0
        while True:
            view = self.client.partitions[partition]
            code: int = ErrorCode.LEADER_NOT_AVAILABLE
            if view.leader >= 0:
                try:
                    row = await self._ask(view)
                except NO_ANSWER:
                    code = ErrorCode.NETWORK_EXCEPTION
                else:
                    code = row.error_code
                    if not code and not self._take(partition, row):
                        code = ErrorCode.CORRUPT_MESSAGE
                    elif not code:
                        await self.pause(partition)
            if code:
                may_be_mended = code == ErrorCode.CORRUPT_MESSAGE and self._context.checker.has_bit_rot(view.leader)
                if not is_retriable(code) and not may_be_mended:
                    detail = f"{self._topic}-{partition} at {self.positions[partition]}: {ErrorCode(code).name}"
                    raise InvariantBroken("a consumer's position stays valid", detail)
                await asyncio.sleep(_RETRY_PAUSE_S)
                await self.client.refresh()

    async def _ask(self, view: PartitionView) -> FetchPartitionResponse:
        wanted = FetchPartition(
            view.partition,
            current_leader_epoch=view.leader_epoch,
            fetch_offset=self.positions[view.partition],
            max_bytes=self.draw_bytes_max(),
        )
        request = FetchRequest(
            max_wait_ms=200, isolation_level=self.isolation_level, topics=[FetchTopic(self._topic, None, [wanted])]
        )
        connection = await self.client.cluster.connection(view.leader)
        body = [encode_fetch_request(_FETCH_VERSION, request)]
        answer = await connection.send_raw(ApiKey.FETCH, _FETCH_VERSION, body, timeout_s=_TIMEOUT_S)
        response = decode_fetch_response(_FETCH_VERSION, answer)
        if response.error_code:
            return FetchPartitionResponse(view.partition, response.error_code)
        return response.topics[0].partitions[0]

    def _take(self, partition: int, row: FetchPartitionResponse) -> bool:
        """Pass the committed records on; False at a batch that is damaged."""
        aborted = AbortedTransactions(row.aborted_transactions or ())
        records = memoryview(bytes(row.records_in_memory()))
        place = (self._topic, partition)
        for position, header in iter_headers(records, allow_partial_tail=True):
            if header.last_offset < self.positions[partition]:
                continue
            if self.isolation_level == READ_COMMITTED and header.last_offset >= row.last_stable_offset:
                detail = f"{self._topic}-{partition}: {header.last_offset}, stable up to {row.last_stable_offset}"
                raise InvariantBroken("nothing above the last stable offset is shown", detail)
            batch = records[position : position + header.size_bytes]
            if not verify_crc(batch, 0, header):
                return False
            if not aborted.hide(batch, header):
                if header.is_transactional:
                    self.check_is_ended(partition, header.producer_id, header.base_offset)
                for record in iter_records(batch):
                    if record.offset >= self.positions[partition]:
                        self._on_read(place, record.offset, self.text_of(record))
            self.positions[partition] = header.next_offset
        return True

    def check_is_ended(self, partition: int, producer_id: int, offset: int) -> None:
        """The committed part of the log has a marker of the producer after the record."""
        log = self._context.checker.committed[self.client.topic_id, partition]
        for base_offset, batch in log.batches.items():
            if base_offset > offset:
                _, header = next(iter(iter_headers(batch)))
                if header.is_control and header.producer_id == producer_id:
                    return
        detail = f"{self._topic}-{partition} at {offset}: no marker of producer {producer_id} is committed"
        raise InvariantBroken("no record of an open transaction is shown", detail)
