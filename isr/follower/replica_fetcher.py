"""Replication from one broker: a loop that sends the next fetch when the last answer is processed.

There is one connection and one request at a time for all partitions that the broker leads and this one follows. The
leader parks a fetch that finds nothing new, so an idle fetcher runs twice a second, and one without partitions never. A
parked fetch does not contain partitions that were added since; the leader expects these and answers it within
milliseconds (see `leader/expected_first_fetches.py`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from ...runtime.invariants import sometimes
from ...runtime.loop import TaskSet
from ...runtime.os_errors import os_reason
from ...wire.api_keys import ApiKey
from ...wire.client import Backoff
from ...wire.errors import ErrorCode, WireFormatError
from ...wire.fetch import decode_fetch_response, encode_fetch_request
from ..ports import FetchConnection, ReplicaManagerConfig
from ..replica import Replica
from ..throttling.throttles import Throttle
from .fetch_request_timeout import FetchRequestTimeout
from .fetcher_state import FetcherListener, FetcherState
from .follower_fetch_session import PartitionKey

_logger = logging.getLogger(__name__)

FETCH_VERSION = 17
_LIST_OFFSETS_VERSION = 7
_LATEST_TIMESTAMP = -1
_EARLIEST_TIMESTAMP = -2
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class FetcherContext:
    """What all fetchers of a broker use."""

    config: ReplicaManagerConfig
    connect: Callable[[int], Awaitable[FetchConnection]]
    broker_epoch: Callable[[], int]
    listener: FetcherListener
    rng: random.Random
    throttle: Throttle


class ReplicaFetcher:
    """Fetches from `broker_id`. To be made on the running loop. Its task begins with the first partitions."""

    def __init__(self, broker_id: int, context: FetcherContext) -> None:
        self.broker_id = broker_id
        self.state = FetcherState(context.config, context.listener, context.throttle)
        self._context = context
        self._loop = asyncio.get_running_loop()
        config = context.config
        self._backoff = Backoff(
            context.rng,
            initial_s=config.replica_fetch_backoff_min_ms / 1000,
            max_s=config.replica_fetch_backoff_max_ms / 1000,
        )
        self._tasks = TaskSet()
        self._wake = asyncio.Event()
        self._connection: FetchConnection | None = None
        self._given_up = False
        self._in_flight = 0
        self._sent = 0
        self._timeout = FetchRequestTimeout(
            config.replica_fetch_wait_max_ms / 1000, config.replica_socket_timeout_ms / 1000
        )
        self._watchdog: asyncio.TimerHandle | None = None

    def add(self, replicas: list[Replica]) -> None:
        """Fetch these, too, from their present log ends and in their present epochs."""
        for replica in replicas:
            self.state.add(replica)
        if not self._tasks:
            self._tasks.spawn(self._run(), name=f"fetcher of broker {self.broker_id}")
        self._backoff.reset()
        self._wake.set()

    def remove(self, key: PartitionKey) -> None:
        """Stop fetching this partition; an answer that is under way is ignored for it."""
        if self.state.remove(key) and not self.state.partitions:
            self._give_up(self._in_flight)
            self._wake.set()

    def on_broker_changed(self, *, restarted: bool) -> None:
        """The broker's registration changed: end all pauses, and connect again if it was restarted."""
        if restarted:
            self._give_up(self._in_flight)
        self._backoff.reset()
        self.state.retry_now()
        self._wake.set()

    async def stop(self) -> None:
        """Stop fetching."""
        await self._tasks.cancel_all()
        self._disconnect()
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None

    # ---------------------------------------------------------------- the loop

    async def _run(self) -> None:
        while True:
            if not self.state.partitions:
                self._disconnect()
                await self._pause(None)
                continue
            try:
                await self._fetch_once()
            except (OSError, TimeoutError, WireFormatError) as error:
                self._in_flight = 0
                self.state.session.on_failure()
                await self._on_lost(error)

    async def _on_lost(self, error: Exception) -> None:
        """Connect again: at once if this node gave the connection up, after a pause if it failed."""
        if self._given_up:
            self._given_up = False
            return
        self._disconnect()
        pause_s = self._backoff.next_s()
        reason = os_reason(error) if isinstance(error, OSError) else error
        _logger.info("fetching from broker %d: %s; again in %.0f ms", self.broker_id, reason, pause_s * 1000)
        await self._pause(pause_s)

    async def _fetch_once(self) -> None:
        connection = self._connection
        if connection is None or connection.is_closed:
            connection = await self._connect()
        now_ms = self._now_ms()
        request = self.state.next_request(self._context.broker_epoch(), now_ms)
        if request is None:
            ready_ms = self.state.next_ready_ms(now_ms)
            await self._pause(None if ready_ms is None else max(ready_ms - now_ms, 1) / 1000)
            return
        body = encode_fetch_request(FETCH_VERSION, request)
        answer = await self._answer_to(connection, connection.send_raw(ApiKey.FETCH, FETCH_VERSION, [body]))
        response = decode_fetch_response(FETCH_VERSION, answer, 0)
        outcome = self.state.on_response(response, self._now_ms())
        if outcome.failed:
            await self._pause(self._backoff.next_s())
            return
        self._backoff.reset()
        for key in outcome.out_of_range:
            await self._resolve_out_of_range(connection, key)

    async def _answer_to(self, connection: FetchConnection, request: Awaitable[_Answer]) -> _Answer:
        self._sent += 1
        self._in_flight = self._sent
        self._timeout.on_sent(connection.received_bytes, self._loop.time())
        self._watch()
        answer = await request
        self._in_flight = 0
        self._timeout.on_answer()
        return answer

    async def _connect(self) -> FetchConnection:
        self._disconnect()
        self._given_up = False
        connection = await self._context.connect(self.broker_id)
        self._connection = connection
        self.state.session.on_failure()
        return connection

    async def _resolve_out_of_range(self, connection: FetchConnection, key: PartitionKey) -> None:
        fetched = self.state.partitions.get(key)
        end_offset = await self._list_offset(connection, key, _LATEST_TIMESTAMP)
        start_offset = await self._list_offset(connection, key, _EARLIEST_TIMESTAMP)
        if fetched is None or self.state.partitions.get(key) is not fetched:
            sometimes(True, "a follower's role changed while it asked where its leader's log begins and ends")
            return  # The offsets may be of two epochs. The fetch in the new epoch finds out again.
        if end_offset is None or start_offset is None:
            self.state.pause(key, ErrorCode.OFFSET_OUT_OF_RANGE, self._now_ms())
        else:
            self.state.restart(key, start_offset, end_offset, self._now_ms())

    async def _list_offset(self, connection: FetchConnection, key: PartitionKey, timestamp: int) -> int | None:
        fetched = self.state.partitions.get(key)
        if fetched is None:
            return None
        partition = {"partition_index": key[1], "current_leader_epoch": fetched.leader_epoch, "timestamp": timestamp}
        topic = {"name": fetched.replica.topic_partition.topic, "partitions": [partition]}
        fields = {"replica_id": self._context.config.node_id, "isolation_level": 0, "topics": [topic]}
        request = connection.request(ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, fields)
        response = await self._answer_to(connection, request)
        row = response.topics[0].partitions[0]
        return row.offset if row.error_code == 0 else None

    # ---------------------------------------------------------------- waiting

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    async def _pause(self, seconds: float | None) -> None:
        """Wait until something changes, or `seconds` have passed."""
        timer = None if seconds is None else self._loop.call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            self._wake.clear()
            if timer is not None:
                timer.cancel()

    def _give_up(self, request: int) -> None:
        if self._in_flight == request:
            self._given_up = True
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _watch(self) -> None:
        """Set the timer for an answer that never comes. It is set again only when it fires."""
        if self._watchdog is None:
            self._watchdog = self._loop.call_at(self._timeout.deadline, self._on_watchdog)

    def _on_watchdog(self) -> None:
        self._watchdog = None
        connection = self._connection
        if not self._in_flight or connection is None:
            return
        sent_at, now = self._timeout.sent_at, self._loop.time()
        if self._timeout.is_over(connection.received_bytes, now):
            sometimes(True, "a follower gave up an answer of its leader that did not come")
            _logger.warning("broker %d has not answered for %.1f s: connecting again", self.broker_id, now - sent_at)
            self._give_up(self._in_flight)
        else:
            self._watch()
