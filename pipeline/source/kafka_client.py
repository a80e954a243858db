"""A synchronous Kafka client for the data source: topics, offsets, the records of a range, and group commits."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import pyarrow as pa

from ...cluster.client.access.bootstrap import parse_bootstrap
from ...cluster.client.client_errors import ClientError, NotLoggedInError, RefusedError, is_retriable
from ...cluster.client.cluster_client import NO_ANSWER, ClusterClient, ClusterView, TopicView
from ...cluster.client.group_client import GroupClient
from ...wire.api_keys import ApiKey
from ...wire.errors import ErrorCode
from ...wire.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    decode_fetch_response,
    encode_fetch_request,
)
from ...wire.types import TopicPartition
from ..errors import PipelineError
from ..login import login_of_options
from .arrow_columns import OffsetRange, damaged_records_error, decode, next_offset
from .offset_planning import data_loss_error
from .options import EARLIEST, LATEST, ClientOptions, ConsumerStrategy, StrategyKind

T = TypeVar("T")

_LIST_OFFSETS_VERSION = 7
_FETCH_VERSION = 12
_RETRY_PAUSE_S = 0.05
_ANSWER_TIMEOUT_S = 10.0
_NO_TOPICS: list[Any] = []


class KafkaClient:
    """A client for one thread, on an event loop of its own. Close it after use.

    Each call raises `PipelineError` when the cluster refuses it or does not answer in time.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        try:
            parse_bootstrap(options.bootstrap)
        except ClientError:
            raise PipelineError(
                f"kafka.bootstrap.servers {options.bootstrap!r} is not host:port, with commas between several."
            ) from None
        login = login_of_options(options.security)
        self._loop = asyncio.new_event_loop()
        timeout_s = min(_ANSWER_TIMEOUT_S, options.timeout_ms / 1000)
        self._client = ClusterClient(options.bootstrap, client_id=options.client_id, timeout_s=timeout_s, login=login)
        self._groups = GroupClient(self._client)
        self._view: ClusterView | None = None

    def close(self) -> None:
        """Close the connections."""
        self._loop.run_until_complete(self._client.__aexit__())
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def __enter__(self) -> KafkaClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- calls

    def partitions(self, strategy: ConsumerStrategy) -> list[TopicPartition]:
        """The partitions that the strategy selects. `PipelineError` for a named topic that does not exist."""
        return self.run(self._partitions(strategy))

    def topic_ids(self, strategy: ConsumerStrategy) -> dict[str, UUID]:
        """The selected topics' ids as of the last `partitions` call. A topic that is created again gets a new id."""
        found = self._view.topics if self._view is not None else ()
        return {
            topic.name: topic.topic_id for topic in found if topic.topic_id is not None and _selects(strategy, topic)
        }

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after each partition's timestamp in milliseconds; None where no record is that late.

        `EARLIEST` and `LATEST` stand for the log's ends. With read_committed the latest is the last stable offset.
        """
        return self.run(self._offsets(wanted))

    def ends(self, strategy: ConsumerStrategy, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """The ends of the selected partitions, within this time if one is given."""
        return self.run(self._ends(strategy, timeout_s))

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a group that has no members."""
        self.run(self._groups.commit(group_id, offsets))

    def read(
        self, offset_range: OffsetRange, columns: Sequence[str], fail_on_data_loss: bool
    ) -> Iterator[pa.RecordBatch]:
        """The records of a range as Arrow batches. The next fetch runs while the last one is decoded."""
        position = offset_range.from_offset
        fetching = self._start(offset_range, position)
        try:
            while position < offset_range.until_offset:
                row = self.run(fetching)
                if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    position = self._offset_after_gap(offset_range, position, fail_on_data_loss)
                    fetching = self._start(offset_range, position)
                    continue
                records = row.records_in_memory()
                # A fetch returns whole batches, the first of which may begin before the fetch offset.
                rest = replace(offset_range, from_offset=position)
                following = next_offset(records, rest)
                if following is None or following <= position:
                    raise damaged_records_error(rest, position, "the records that came hold no whole batch from there")
                if following < offset_range.until_offset:
                    fetching = self._start(offset_range, following)
                yield from decode(records, row.aborted_transactions or (), rest, columns)
                position = following
        finally:
            fetching.cancel()

    # -- requests

    @property
    def cluster(self) -> ClusterClient:
        """The client for requests of others, which `run` carries out."""
        return self._client

    def run(self, work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
        """Do this work on the event loop. `PipelineError` when the cluster refuses it or does not answer."""
        try:
            return self._loop.run_until_complete(work)
        except RefusedError as error:
            raise PipelineError(f"the cluster at {self.options.bootstrap} refused: {error}.") from None
        except NotLoggedInError as error:
            raise PipelineError(f"{error}; {error.way_out} in the kafka.* options.") from None
        except ClientError as error:
            raise PipelineError(
                f"kafka.bootstrap.servers {self.options.bootstrap}: {error}; is the cluster up?"
            ) from None

    def _start(self, offset_range: OffsetRange, position: int) -> asyncio.Task[FetchPartitionResponse]:
        fetching = self._loop.create_task(self._fetch_until_there(offset_range, position))
        self._loop.run_until_complete(asyncio.sleep(0))  # sends the request now, not when its response is awaited
        return fetching

    async def _metadata(self, topics: list[str] | None, *, asks_another: bool = False) -> ClusterView:
        """Metadata from any broker; with `asks_another` see `ClusterClient.request`.

        The request is repeated until the timeout, since a failover takes a while.
        """
        deadline = self._loop.time() + self.options.timeout_ms / 1000
        while True:
            try:
                self._view = await self._client.metadata(topics, asks_another=asks_another)
                return self._view
            except (RefusedError, NotLoggedInError):
                raise
            except ClientError:
                if self._loop.time() > deadline:
                    raise
            await asyncio.sleep(_RETRY_PAUSE_S)

    async def _partitions(self, strategy: ConsumerStrategy) -> list[TopicPartition]:
        asked = None if strategy.kind is StrategyKind.PATTERN else list(strategy.names)
        view = await self._metadata(asked)
        found = {topic.name: [one.partition for one in topic.partitions] for topic in view.topics}
        for name in strategy.names:
            if not found.get(name):
                raise PipelineError(
                    f"topic {name} is not there: create it (raftwerk topics create {name}), or mend "
                    f"{strategy.kind.value}."
                )
        for key in strategy.partitions:
            if key.partition not in found[key.topic]:
                raise PipelineError(
                    f"topic {key.topic} has partitions 0 to {max(found[key.topic])}, not {key.partition}: mend assign."
                )
        if strategy.kind is StrategyKind.ASSIGN:
            return sorted(strategy.partitions)
        return [
            TopicPartition(topic.name, one.partition)
            for topic in sorted(view.topics, key=lambda topic: topic.name)
            if _selects(strategy, topic)
            for one in topic.partitions
        ]

    async def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        missing = sorted(wanted)
        deadline = self._loop.time() + self.options.timeout_ms / 1000
        await self._metadata(list(dict.fromkeys(key.topic for key in missing)))
        while True:
            by_leader: dict[int, list[TopicPartition]] = {}
            for key in missing:
                by_leader.setdefault(self._leader(key), []).append(key)
            answers = (self._list_offsets(leader, keys, wanted) for leader, keys in by_leader.items() if leader >= 0)
            for answer in await asyncio.gather(*answers):
                found |= answer
            missing = [key for key in missing if key not in found]
            if not missing:
                return found
            if self._loop.time() > deadline:
                names = ", ".join(f"{key.topic}-{key.partition}" for key in missing)
                raise ClientError(f"no leader tells the offsets of {names}")
            await asyncio.sleep(_RETRY_PAUSE_S)
            await self._metadata(list(dict.fromkeys(key.topic for key in missing)), asks_another=True)

    async def _ends(self, strategy: ConsumerStrategy, timeout_s: float | None) -> dict[TopicPartition, int]:
        try:
            async with asyncio.timeout(timeout_s):
                keys = await self._partitions(strategy)
                return {key: end or 0 for key, end in (await self._offsets(dict.fromkeys(keys, LATEST))).items()}
        except TimeoutError:
            raise ClientError(f"the ends of the topics were not told in {timeout_s} s") from None

    def _leader(self, key: TopicPartition) -> int:
        for topic in self._view.topics if self._view else _NO_TOPICS:
            if topic.name == key.topic:
                return next((one.leader for one in topic.partitions if one.partition == key.partition), -1)
        return -1

    async def _list_offsets(
        self, leader: int, keys: list[TopicPartition], wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for key in keys:
            row = {"partition_index": key.partition, "current_leader_epoch": -1, "timestamp": wanted[key]}
            topics.setdefault(key.topic, []).append(row)
        fields = {
            "replica_id": -1,
            "isolation_level": self.options.isolation_level,
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }
        try:
            answer = await self._client.request_node(leader, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, fields)
        except NO_ANSWER:
            return {}
        found: dict[TopicPartition, int | None] = {}
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code and not is_retriable(row.error_code):
                    raise RefusedError(row.error_code, f"{topic.name}-{row.partition_index}")
                if not row.error_code:
                    found[TopicPartition(topic.name, row.partition_index)] = row.offset if row.offset >= 0 else None
        return found

    # -- fetches

    async def _fetch_until_there(self, offset_range: OffsetRange, position: int) -> FetchPartitionResponse:
        """Records from `position` on, or OFFSET_OUT_OF_RANGE. Repeated while there are no records or no leader."""
        key = TopicPartition(offset_range.topic, offset_range.partition)
        deadline = self._loop.time() + self.options.poll_timeout_ms / 1000
        reason = "its leader is not there"
        is_again = False
        while True:
            if self._leader(key) < 0:
                await self._metadata([offset_range.topic], asks_another=is_again)
            response = await self._fetch(key, self._leader(key), position)
            row = response.topics[0].partitions[0] if response is not None and response.topics else None
            if response is not None and row is None:  # Apache Kafka's answer to a client that is over its quota
                reason = "its leader throttles this client by a quota"
                await asyncio.sleep(_RETRY_PAUSE_S)
            elif row is not None and row.error_code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
                if row.records or row.error_code:
                    return row
                reason = self._readable(row)
            elif row is not None and not is_retriable(row.error_code):
                raise RefusedError(row.error_code, f"{offset_range}")
            else:
                self._view, is_again = None, True
                await asyncio.sleep(_RETRY_PAUSE_S)
            if self._loop.time() > deadline:
                raise PipelineError(
                    f"{offset_range}: records {position} to {offset_range.until_offset} have not come in "
                    f"{self.options.poll_timeout_ms} ms, {reason}; look at `raftwerk doctor`, or "
                    "raise kafkaConsumer.pollTimeoutMs."
                )

    def _readable(self, row: FetchPartitionResponse) -> str:
        if self.options.isolation_level and 0 <= row.last_stable_offset < row.high_watermark:
            return f"a transaction is open from {row.last_stable_offset} on (raftwerk transactions list shows which)"
        return f"its log is readable up to {max(row.high_watermark, 0)}"

    async def _fetch(self, key: TopicPartition, leader: int, position: int) -> FetchResponse | None:
        options = self.options
        partition = FetchPartition(key.partition, fetch_offset=position, max_bytes=options.fetch_max_bytes)
        request = FetchRequest(
            max_wait_ms=options.fetch_max_wait_ms,
            max_bytes=options.fetch_max_bytes,
            isolation_level=options.isolation_level,
            topics=[FetchTopic(key.topic, None, [partition])],
        )
        try:
            connection = await self._client.connection(leader)
            body = encode_fetch_request(_FETCH_VERSION, request)
            timeout_s = self._client.timeout_s + options.fetch_max_wait_ms / 1000
            await connection.unthrottled(timeout_s)
            answer = await connection.send_raw(ApiKey.FETCH, _FETCH_VERSION, [body], timeout_s=timeout_s)
            response = decode_fetch_response(_FETCH_VERSION, answer)
            connection.throttle(response.throttle_ms)
        except NO_ANSWER:
            return None
        if response.error_code:
            raise RefusedError(response.error_code, f"the fetch of {key.topic}-{key.partition}")
        return response

    def _offset_after_gap(self, offset_range: OffsetRange, position: int, fail_on_data_loss: bool) -> int:
        """The offset to continue at when `position` is not in the log. `PipelineError` if data loss is to fail."""
        key = TopicPartition(offset_range.topic, offset_range.partition)
        low, high = (self.offsets({key: moment})[key] or 0 for moment in (EARLIEST, LATEST))
        if fail_on_data_loss:
            raise data_loss_error(key, position, low, high)
        following = min(low, offset_range.until_offset) if position < low else offset_range.until_offset
        print(f"{offset_range}: offsets {position} to {following} are gone; failOnDataLoss is false", file=sys.stderr)
        return following


def _selects(strategy: ConsumerStrategy, topic: TopicView) -> bool:
    """Whether a query reads the topic. A pattern selects no internal one, as in Spark's connector; a name does."""
    return strategy.includes(topic.name) and not (topic.internal and strategy.kind is StrategyKind.PATTERN)
