"""A data directory written by Apache Kafka, and what Kafka's own broker served from it.

The test that needs Java makes one afresh. A small one lies beside this file, so that the reading is tested without Java
too; `PYTHONPATH=tests python -m support.log.kafka_written` makes that one again.
"""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.confluent import headers_of
from support.ports import free_ports

FIXTURE = Path(__file__).with_name("kafka-4.2-data.tar.gz")
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BASE_MS = 1_700_000_000_000
DEADLINE_S = 40.0
TOPICS = {
    "codecs": {"internal.segment.bytes": "3000", "index.interval.bytes": "200"},
    "compacted": {
        "internal.segment.bytes": "3000",
        "index.interval.bytes": "200",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": "0",
    },
    "transactional": {"internal.segment.bytes": "1000", "index.interval.bytes": "200"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "empty": {},
}

Headers: TypeAlias = tuple[tuple[str, Any], ...]
"""Names and values, which are bytes or None."""
Sent: TypeAlias = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers and timestamp."""


def kafka_libs() -> str:
    """The class path of Apache Kafka's jars; skips the test where there are none."""
    path = Path(os.environ.get("KAFKA_LIBS", Path.home() / ".cache" / "kafka-4.2.0"))
    if shutil.which("java") is None:
        pytest.skip("NOT TESTED against Apache Kafka: no java on the PATH")
    if not list(path.glob("kafka-tools-*.jar")):
        pytest.skip(f"NOT TESTED against Apache Kafka: no jars in {path} (set KAFKA_LIBS)")
    return f"{path}/*"


class Served(NamedTuple):
    """A record as a consumer gets it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


Expected: TypeAlias = dict[str, dict[str, list[Served]]]
"""By topic, then by isolation level; every topic has one partition."""


class KafkaBroker:
    """One combined node of Apache Kafka with a small heap."""

    def __init__(self, libs: str, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        self.data = directory / "data"
        self.port, controller = free_ports(2)
        self._java = ["java", "-Xms128m", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", libs]
        self._log = directory / "broker.log"
        quiet = directory / "log4j2.yaml"
        quiet.write_text("Configuration: {Loggers: {Root: {level: WARN}}}\n")
        self._java.append(f"-Dlog4j2.configurationFile={quiet}")
        self._properties = directory / "server.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.backoff.ms": "100",
            "log.cleaner.dedupe.buffer.size": "2097152",
            "log.retention.ms": "-1",
            **(overrides or {}),
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties))
        with self._log.open("wb") as log:
            command = [*self._java, "kafka.Kafka", str(self._properties)]
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        """In good order: indexes are trimmed, the directory is marked as cleanly left."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def _run(self, *arguments: str) -> None:
        done = subprocess.run([*self._java, *arguments], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise RuntimeError(f"{arguments[0]} failed: {done.stdout} {done.stderr}")


@contextmanager
def kafka_broker(libs: str, directory: Path, overrides: Mapping[str, str] | None = None) -> Iterator[KafkaBroker]:
    """A broker that is killed in the end; `overrides` are settings."""
    broker = KafkaBroker(libs, directory, overrides)
    try:
        yield broker
    finally:
        broker.kill()


def write_topics(broker: KafkaBroker) -> Expected:
    """Make the topics, fill them, wait until the compacted one is; returns what the broker serves then."""
    wait_for(lambda: _answers(broker.port), "the broker listens")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(name, 1, 1, config=dict(config)) for name, config in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(DEADLINE_S)
    write_codecs(broker.bootstrap)
    write_compacted(broker)
    write_transactional(broker.bootstrap)
    send(broker.bootstrap, "stamped", [(b"k%d" % n, b"v%d" % n, (), BASE_MS) for n in range(10)], "zstd")
    return {
        topic: {level: consume(broker.bootstrap, topic, level) for level in ("read_uncommitted", "read_committed")}
        for topic in TOPICS
    }


def write_codecs(bootstrap: str) -> None:
    for turn in range(3):
        for codec in CODECS:
            records: list[Sent] = [
                (
                    None if n % 5 == 0 else b"key-%d" % n,
                    None if n % 7 == 3 else f"{codec} {turn} {n} ".encode() * (n % 9),
                    () if n % 3 else (("h", b"value"), ("empty", b""), ("null", None), ("ü", bytes([n]))),
                    BASE_MS + 1000 * turn + n - 20 * (n % 2),
                )
                for n in range(30)
            ]
            send(bootstrap, "codecs", records, codec, **{"enable.idempotence": turn == 1})


def write_compacted(broker: KafkaBroker) -> None:
    for turn in range(40):
        once: list[Sent] = [(b"once-%d" % turn, b"x" * turn, (("h", b"y"),), BASE_MS + turn)] if turn % 5 == 0 else []
        records: list[Sent] = once + [
            (b"key-%d" % (n * n % 11), None if turn == 39 and n == 3 else b"%d.%d " % (turn, n) * 5, (), BASE_MS + turn)
            for n in range(10)
        ]
        send(broker.bootstrap, "compacted", records, CODECS[turn % 5])
    directory = broker.data / "compacted-0"
    active = max(int(file.stem) for file in directory.glob("*.log"))
    wait_for(lambda: _cleaned_up_to(broker.data) >= active, "all but the active segment is compacted")


def _cleaned_up_to(data: Path) -> int:
    checkpoint = data / "cleaner-offset-checkpoint"
    rows = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    return max((int(row.split()[2]) for row in rows if row.startswith("compacted ")), default=0)


def write_transactional(bootstrap: str) -> None:
    producers = [
        Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t{number}", "linger.ms": 5})
        for number in range(2)
    ]
    for producer in producers:
        producer.init_transactions(DEADLINE_S)
    for turn in range(8):
        for number, producer in enumerate(producers):
            producer.begin_transaction()
            for n in range(6):
                producer.produce("transactional", b"%d.%d.%d " % (turn, number, n) * 6, b"k", timestamp=BASE_MS + turn)
            producer.flush(DEADLINE_S)
        for number, producer in enumerate(producers):
            if (turn + number) % 3 == 0:
                producer.abort_transaction(DEADLINE_S)
            else:
                producer.commit_transaction(DEADLINE_S)
        send(bootstrap, "transactional", [(b"plain", b"%d" % turn, (), BASE_MS + turn)], "none")


def send(bootstrap: str, topic: str, records: list[Sent], codec: str, **settings: Any) -> None:
    """Produce `records` (key, value, headers, timestamp) in one batch or a few."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20, **settings})
    for key, value, headers, timestamp in records:
        producer.produce(topic, value, key, 0, timestamp=timestamp, headers=list(headers))
    if producer.flush(DEADLINE_S):
        raise RuntimeError(f"{topic}: not everything was sent")


def consume(bootstrap: str, topic: str, isolation_level: str) -> list[Served]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation_level,
            "enable.partition.eof": False,
            "check.crcs": True,
        }
    )
    partition = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_S)
    consumer.assign([partition])
    found: list[Served] = []
    deadline = time.monotonic() + DEADLINE_S
    while consumer.position([partition])[0].offset < end and end:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} was not read to {end}")
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            headers = tuple(headers_of(message))
            offset = message.offset()
            assert offset is not None
            found.append(Served(offset, message.timestamp()[1], message.key(), message.value(), headers))
    consumer.close()
    return found


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {DEADLINE_S} s until {what}")
        time.sleep(0.02)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# The fixture


def unpack_fixture(directory: Path) -> Expected:
    """The data directory becomes `directory/data`."""
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(directory, filter="data")
    text = (directory / "expected.json").read_text()
    return {
        topic: {level: [_from_json(row) for row in rows] for level, rows in levels.items()}
        for topic, levels in json.loads(text).items()
    }


def _from_json(row: list[Any]) -> Served:
    offset, timestamp, key, value, headers = row
    return Served(offset, timestamp, _bytes(key), _bytes(value), tuple((name, _bytes(text)) for name, text in headers))


def _to_json(served: Served) -> list[Any]:
    headers = [[name, _text(value)] for name, value in served.headers]
    return [served.offset, served.timestamp, _text(served.key), _text(served.value), headers]


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def make_fixture(libs: str) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        with kafka_broker(libs, directory) as broker:
            expected = write_topics(broker)
            broker.stop()
        content = json.dumps(
            {
                topic: {level: [_to_json(row) for row in rows] for level, rows in levels.items()}
                for topic, levels in expected.items()
            }
        ).encode()
        with tarfile.open(FIXTURE, "w:gz", compresslevel=9) as archive:
            entry = tarfile.TarInfo("expected.json")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
            for path in sorted(broker.data.rglob("*")):
                if not path.relative_to(broker.data).parts[0].startswith("__cluster_metadata") and path.is_file():
                    archive.add(path, f"data/{path.relative_to(broker.data)}", filter=_anonymous)
    finally:
        shutil.rmtree(directory)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    make_fixture((sys.argv[1] if len(sys.argv) > 1 else os.path.expanduser("~/.cache/kafka-4.2.0")) + "/*")
    print(f"{FIXTURE}: {FIXTURE.stat().st_size} bytes")
