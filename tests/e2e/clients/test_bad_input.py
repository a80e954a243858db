"""What no proper client sends: each gets Kafka's answer or a closed connection, and everybody else is served on."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.e2e import helpers

from raftwerk.cluster.local.supervisor import Supervisor
from raftwerk.wire.records import NewRecord, encode_batch

API_VERSIONS, METADATA, PRODUCE = 18, 3, 0


def port_of(cluster: Supervisor) -> int:
    port = cluster.plan.node(1).port
    assert port is not None
    return port


@pytest.fixture
def raw(cluster: Supervisor) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port_of(cluster)), 5) as connection:
        connection.settimeout(5)
        yield connection


def frame(api: int, version: int, body: bytes, correlation_id: int = 7) -> bytes:
    header = struct.pack(">hhih3s", api, version, correlation_id, 3, b"bad")
    return struct.pack(">i", len(header + body)) + header + body


UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER_OR_FOLLOWER = 6


def answer(connection: socket.socket) -> bytes:
    """One response without its size; b"" when the connection was closed."""

    def exactly(count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                more = connection.recv(count - len(data))
            except ConnectionResetError:
                return b""
            if not more:
                return b""
            data += more
        return data

    size = exactly(4)
    return exactly(struct.unpack(">i", size)[0]) if size else b""


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 104857601),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes.fromhex("16030100c8010000c40303") + bytes(200),
        struct.pack(">ih", 2, 3),
        frame(METADATA, 1, struct.pack(">i", 1_000_000)),
        frame(METADATA, 1, struct.pack(">i", -7)),
        frame(METADATA, 1, struct.pack(">ih", 1, 500) + b"short"),
        frame(999, 0, b""),
        frame(METADATA, 99, b""),
        frame(PRODUCE, 3, b"\x00"),
    ],
    ids=[
        "size-0", "size-negative", "size-2^31-1", "size-over-limit", "http", "tls", "truncated-header",
        "array-beyond-end", "array-negative", "string-beyond-end", "unknown-api", "unknown-version", "truncated-body",
    ],
)  # fmt: skip
def test_closed_and_others_served(cluster: Supervisor, raw: socket.socket, data: bytes) -> None:
    raw.sendall(data)
    assert answer(raw) == b""
    with socket.create_connection(("127.0.0.1", port_of(cluster)), 5) as other:
        other.settimeout(5)
        other.sendall(frame(METADATA, 1, struct.pack(">i", 0)))
        assert answer(other)[:4] == struct.pack(">i", 7)


def test_api_versions_of_an_unknown_version(raw: socket.socket) -> None:
    raw.sendall(frame(API_VERSIONS, 99, b"\0" + b"some later body"))
    reply = answer(raw)
    correlation_id, error, count = struct.unpack_from(">ihi", reply)
    assert (correlation_id, error) == (7, 35)
    rows = [struct.unpack_from(">hhh", reply, 10 + 6 * number) for number in range(count)]
    assert any(key == API_VERSIONS for key, _, _ in rows)


def produce_frame(topic: str, batch: bytes) -> bytes:
    name = topic.encode()
    body = struct.pack(">hhii", -1, -1, 5000, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    return frame(PRODUCE, 3, body)


def damaged(kind: str) -> bytes:
    batch = encode_batch([NewRecord(None, b"x", (), 1)], is_control=kind == "control")
    if kind == "crc":
        batch[-1] ^= 1
    elif kind == "magic":
        batch[16] = 1
    elif kind == "length":
        struct.pack_into(">i", batch, 8, len(batch) + 100)
    elif kind == "count":
        struct.pack_into(">i", batch, 57, 5)
        rewrite_crc(batch)
    elif kind == "codec":
        struct.pack_into(">h", batch, 21, 7)
        rewrite_crc(batch)
    return bytes(batch)


def rewrite_crc(batch: bytearray) -> None:
    from crc32c import crc32c

    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        ("crc", [2]),
        ("magic", [2, 43, 87]),
        ("length", [2, 87]),
        ("count", [2, 87]),
        ("codec", [2, 76, 87]),
        ("control", [87]),
    ],
)
def test_damaged_batches(cluster: Supervisor, topic: str, kind: str, codes: list[int]) -> None:
    helpers.create_topic(cluster.plan.bootstrap, topic)
    leader = cluster.plan.node(helpers.leader_of(cluster.plan.bootstrap, topic))
    with socket.create_connection(("127.0.0.1", leader.port or 0), 5) as connection:
        connection.settimeout(5)
        code = UNKNOWN_TOPIC_OR_PARTITION
        for _ in range(1000):
            connection.sendall(produce_frame(topic, damaged(kind)))
            reply = answer(connection)
            assert reply, "the connection was closed"
            code = struct.unpack_from(">h", reply, 4 + 4 + 2 + len(topic) + 4 + 4)[0]
            if code not in (UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER):  # the leader itself has yet to hear
                break
    assert code in codes
    assert helpers.read_all(cluster.plan.bootstrap, topic) == [[]]


@pytest.mark.parametrize("name", ["", "..", "a b", "ä", "x" * 250, "semi;colon"])
def test_illegal_topic_names(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with pytest.raises((KafkaException, ValueError)) as caught:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(10)
    if isinstance(caught.value, KafkaException):
        assert caught.value.args[0].code() in (17, 42, -186)


def test_more_replicas_than_brokers(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic(topic, 1, 4)])[topic].result(10)
    assert caught.value.args[0].code() == 38


def test_a_batch_over_the_limit(bootstrap: str, topic: str) -> None:
    helpers.create_topic(bootstrap, topic, max_message_bytes="1000")
    producer = Producer({"bootstrap.servers": bootstrap, **helpers.PRODUCER})
    errors: list[int] = []
    producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: errors.append(error.code() if error else 0))
    producer.flush(20)
    assert errors == [10]
