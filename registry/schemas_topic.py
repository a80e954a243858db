"""The topic `_schemas`: followed from its beginning, and written by one registry at a time.

Writes go through a transactional producer (KIP-98) whose id all registries of a topic share. So the registry that was
elected last fences the one before it with its first write, and what one decides on its image cannot be overtaken. A
write is done when it was read back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from ..cluster.client.client_errors import NotLoggedInError, OtherClusterError, RefusedError, UnreachableError
from ..cluster.client.cluster_client import ClusterClient
from ..security.client_login import ClientLogin
from .decisions import Decide
from .errors import RegistryError, schema_too_large
from .image import RegistryImage
from .records import DamagedRecordError, Record, decode

_logger = logging.getLogger(__name__)
_POLL_S = 0.1
_TIMEOUT_S = 30.0
_REACH_TIMEOUT_S = 5.0
"""How long a write waits for a broker that answers. An election takes none away from the others."""
_RECONNECT_MS_MAX = 1000
_SOCKET_TIMEOUT_MS = 10_000
"""How long librdkafka waits for a leader that hangs, before it looks for its successor, which is elected by then."""
_REFRESH_MS = 5_000
"""How often librdkafka asks who leads, so that it finds the successor of a leader that hangs."""
_REPLICAS = 3
_RECORD_BYTES_MAX = 16 << 20
"""What librdkafka sends at most, so that it is the topic's `max.message.bytes` that decides."""
_DECIDING_THREADS = 4
T = TypeVar("T")

_NO_BROKER = (
    "no broker of the cluster answers, so nothing was written: raftwerk doctor shows which nodes are to be started or "
    "woken"
)
_SLOW = (
    f"the cluster has not finished the write within {_TIMEOUT_S:g} s, and it may be done or not: raftwerk doctor shows "
    "which nodes are missing"
)


class SchemasTopicError(Exception):
    """The topic cannot be used; the sentence says why and what to do."""


class FencedError(Exception):
    """Another registry has taken over the writing. Nothing of the write remains."""


class SchemasTopic:
    """The topic of one cluster. `settings` are those of librdkafka: the addresses, and how it logs in.

    Whether any broker answers is found out by a `ClusterClient`, which asks all of them and uses `login`; librdkafka
    asks only one.
    """

    def __init__(self, settings: Mapping[str, str], topic: str = "_schemas", login: ClientLogin | None = None) -> None:
        self.topic = topic
        self.group = f"raftwerk-registry-{topic}"
        """The transactional id, and the group, that all registries of the topic share."""
        self.image = RegistryImage()
        """The state of the registry: of the records that were read, or of those before the topic was read anew."""
        self._replayed = self.image
        """What records are replayed into: another image while the topic is read anew."""
        quiet = {"log_level": 0, "logger": _silent()}
        self._settings: dict[str, Any] = {
            "reconnect.backoff.max.ms": _RECONNECT_MS_MAX,
            "socket.timeout.ms": _SOCKET_TIMEOUT_MS,
            "topic.metadata.refresh.interval.ms": _REFRESH_MS,
            **settings,
            **quiet,
        }
        self._client = ClusterClient(
            settings["bootstrap.servers"],
            client_id="raftwerk-registry",
            timeout_s=_REACH_TIMEOUT_S,
            login=login,
            is_silent=True,
            is_interactive=True,
        )
        self._writing = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._moved = asyncio.Condition()
        self._next_offset = 0
        self._ended = threading.Event()
        self._producer: Any = None
        """The producer, once the image has all that it and those before it have written; None until then."""
        self._deciding = ThreadPoolExecutor(_DECIDING_THREADS, "decisions")
        self._snapshot: RegistryImage | None = None
        self._follower = threading.Thread(target=self._follow, name="schemas", daemon=True)

    async def start(self) -> None:
        """Make the topic if it is missing, and read to the end. Raises `SchemasTopicError`."""
        from confluent_kafka import KafkaException

        try:
            await asyncio.to_thread(self._prepare)
            self._follower.start()
            await self._until(await asyncio.to_thread(self._first_end))
        except KafkaException as error:
            raise SchemasTopicError(f"the topic {self.topic} cannot be used: {error.args[0].str()}") from None
        except TimeoutError:
            raise SchemasTopicError(
                f"the topic {self.topic} could not be read to its end in {_TIMEOUT_S:g} s"
            ) from None

    async def _take_over(self) -> None:
        """Fence all other writers, and read what they have written."""
        from confluent_kafka import Producer

        settings = {"transactional.id": self.group, "linger.ms": 0, "message.max.bytes": _RECORD_BYTES_MAX}
        producer = Producer({**self._settings, **settings})
        await self._check_reached()
        await asyncio.to_thread(producer.init_transactions, _TIMEOUT_S)
        await self.read_to_the_end()
        self._producer = producer

    async def read_to_the_end(self) -> None:
        """Read what is in the topic now. Raises `TimeoutError` and `KafkaException`."""
        await self._until(await asyncio.to_thread(self._end))

    async def catch_up(self) -> None:
        """Read what is in the topic now, for a reader who comes next; without an answer of the cluster go on."""
        from confluent_kafka import KafkaException

        try:
            await self.read_to_the_end()
        except (KafkaException, TimeoutError) as error:
            _logger.warning("%s could not be read to its end for now: %s", self.topic, error)

    async def stop(self) -> None:
        """Stop following the topic."""
        self._ended.set()
        await self._client.__aexit__()
        if self._follower.is_alive():
            await asyncio.to_thread(self._follower.join)
        self._deciding.shutdown(wait=False, cancel_futures=True)

    async def ask(self, question: Callable[[RegistryImage], T]) -> T:
        """The answer to a question about the image of now, which may take seconds. Raises `RegistryError`.

        It is asked in a thread, on a copy of the image, while others are answered.
        """
        if self._snapshot is None:
            self._snapshot = self.image.snapshot()
        return await self._loop.run_in_executor(self._deciding, question, self._snapshot)

    async def change(self, decide: Decide) -> Any:
        """The answer of a decision, whose records are in the log then.

        Raises `RegistryError`, and `FencedError` where this registry is not the writer any more.
        """
        from confluent_kafka import KafkaException

        async with self._writing:
            try:
                if self._producer is None:
                    await self._take_over()
                else:
                    await self._check_reached()
                await self._until(0)
                decision = await self.ask(decide)
                if decision.records:
                    await self._write_and_read_back(decision.records)
            except TimeoutError:
                raise RegistryError(50002, _SLOW) from None
            except KafkaException as error:
                raise _store_error(error.args[0]) from None
            return decision.answer

    async def _check_reached(self) -> None:
        """Raise `RegistryError` where no broker answers, before anything is begun: a commit waits much longer."""
        try:
            async with asyncio.timeout(_REACH_TIMEOUT_S):
                await self._client.metadata([self.topic])
        except (NotLoggedInError, OtherClusterError, RefusedError) as error:
            raise RegistryError(50001, f"Error in the backend data store: {error}") from None
        except (UnreachableError, TimeoutError):
            raise RegistryError(50001, _NO_BROKER) from None

    async def _write_and_read_back(self, records: Sequence[Record]) -> None:
        """Write records, and read up to behind them. Raises as `_write`, and `TimeoutError`.

        A write that failed or was not read back in time may be in the log all the same. So there is no producer until
        it is read, and the next change takes over anew, which reads to the end: an older image would give an id twice.
        """
        producer, self._producer = self._producer, None
        end = await asyncio.to_thread(self._write, producer, records)
        await self._until(end)
        self._producer = producer

    # -- in threads

    def _prepare(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

        admin = AdminClient(self._settings)
        there = admin.list_topics(timeout=_TIMEOUT_S)
        if self.topic not in there.topics:
            new = NewTopic(self.topic, 1, min(_REPLICAS, len(there.brokers)), config={"cleanup.policy": "compact"})
            try:
                admin.create_topics([new])[self.topic].result(_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise
            return
        if len(there.topics[self.topic].partitions) != 1:
            raise SchemasTopicError(f"the topic {self.topic} must have one partition: name another by --topic")
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        policy = admin.describe_configs([resource])[resource].result(_TIMEOUT_S)["cleanup.policy"].value
        if policy != "compact":
            raise SchemasTopicError(
                f"the topic {self.topic} has cleanup.policy={policy}, which would delete schemas: raftwerk configs set "
                f"--topic {self.topic} cleanup.policy=compact"
            )

    def _end(self) -> int:
        """The end of the log, up to which this registry has to read before it may decide."""
        consumer = self._consumer()
        try:
            from confluent_kafka import TopicPartition

            return int(consumer.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=_TIMEOUT_S)[1])
        finally:
            consumer.close()

    def _first_end(self) -> int:
        """As `_end`, but wait for brokers that have not heard of a new topic yet, or do not lead it any more."""
        from confluent_kafka import KafkaError, KafkaException

        of_client = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)
        of_broker = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.NOT_LEADER_FOR_PARTITION)
        for _ in range(round(_TIMEOUT_S / _POLL_S)):
            try:
                return self._end()
            except KafkaException as error:
                if error.args[0].code() not in (*of_client, *of_broker):
                    raise
                self._ended.wait(_POLL_S)
        return self._end()

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer

        settings = {"group.id": self.group, "enable.auto.commit": False, "enable.partition.eof": True}
        reading = {"isolation.level": "read_committed", "auto.offset.reset": "error"}
        return Consumer({**self._settings, **settings, **reading})

    def _follow(self) -> None:
        from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

        consumer = self._consumer()
        beginning = [TopicPartition(self.topic, 0, OFFSET_BEGINNING)]
        consumer.assign(beginning)
        while not self._ended.is_set():
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            if message.error() is None:
                self._tell(message.offset() + 1, message.key() or b"", message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                self._tell(message.offset())
            elif message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                _logger.warning("%s is read anew from its beginning: %s", self.topic, message.error().str())
                self._run(self._begin_anew())
                self._ended.wait(_POLL_S)
                consumer.assign(beginning)
            else:
                _logger.warning("%s cannot be read now: %s", self.topic, message.error().str())
        consumer.close()

    def _tell(self, next_offset: int, key: bytes | None = None, value: bytes | None = None) -> None:
        """Hand a record, or without a key the end of the log, to the event loop."""
        self._run(self._take(next_offset, key, value))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this in the event loop, after what was given to it before."""
        if self._ended.is_set():
            work.close()
        else:
            asyncio.run_coroutine_threadsafe(work, self._loop)

    def _write(self, producer: Any, records: Sequence[Record]) -> int:
        """The offset behind the records, which are committed. Raises `RegistryError` and `FencedError`."""
        from confluent_kafka import KafkaError, KafkaException

        encoded = [one.encode() for one in records]
        offsets: list[int] = []
        failures: list[Any] = []

        def on_delivery(error: Any, message: Any) -> None:
            if error is None:
                offsets.append(message.offset())
            else:
                failures.append(error)

        try:
            producer.begin_transaction()
            for key, value in encoded:
                producer.produce(self.topic, key=key, value=value, partition=0, on_delivery=on_delivery)
            producer.commit_transaction(_TIMEOUT_S)
        except KafkaException as raised:
            error = raised.args[0]
            if error.fatal():
                raise FencedError from None
            is_too_large = any(one.code() == KafkaError.MSG_SIZE_TOO_LARGE for one in (error, *failures))
            with suppress(KafkaException):  # whether it was committed is known when another producer has begun
                producer.abort_transaction(_TIMEOUT_S)
            raise (schema_too_large() if is_too_large else _store_error(error)) from None
        return max(offsets) + 1

    # -- in the event loop

    async def _take(self, next_offset: int, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            self._serve(self._replayed)
        else:
            self._snapshot = None
            try:
                self._replayed.replay(decode(key, value))
            except (DamagedRecordError, AttributeError, TypeError, ValueError, OverflowError) as error:
                _logger.warning("the record at offset %d of %s is passed over: %s", next_offset - 1, self.topic, error)
        self._next_offset = max(self._next_offset, next_offset)
        async with self._moved:
            self._moved.notify_all()

    async def _begin_anew(self) -> None:
        """What comes next is the beginning of the log. What was read before is served until the end is reached."""
        self._replayed = RegistryImage()
        self._next_offset = 0

    def _serve(self, image: RegistryImage) -> None:
        if image is not self.image:
            self.image, self._snapshot = image, None

    async def _until(self, offset: int) -> None:
        """Wait until what is served has all records before this offset, and is not read anew."""
        async with asyncio.timeout(_TIMEOUT_S), self._moved:
            await self._moved.wait_for(lambda: self._next_offset >= offset and self._replayed is self.image)


def _store_error(error: Any) -> RegistryError:
    """What to answer where librdkafka gives up. Its own words for a cluster that is too slow are about its insides."""
    from confluent_kafka import KafkaError

    if error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._MSG_TIMED_OUT):
        return RegistryError(50001, _SLOW)
    return RegistryError(50001, f"Error in the backend data store: {error.str()}")


def _silent() -> logging.Logger:
    """Where librdkafka logs, which would print its fatal errors: they are answered and told here."""
    logger = logging.getLogger(f"{__name__}.librdkafka")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger
