"""Records of version 3: formats, mistakes, streams, and a leader that dies while a stream runs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.rest.proxy import JSON_V2, Proxy, in_base64, text_record
from support.rest.records import consume

from raftwerk.rest import record_producer
from raftwerk.rest.errors import KAFKA_RETRIABLE_ERROR, RestError
from raftwerk.rest.record_producer import NewRecord, RecordProducer
from raftwerk.testkit.process_cluster import TestCluster

pytestmark = pytest.mark.process


def test_formats(proxy: Proxy, cluster: TestCluster) -> None:
    topic = cluster.create_topic(partitions=2)
    record = {
        "partition_id": 1,
        "headers": [{"name": "h", "value": in_base64(b"\x00\xff")}, {"name": "none", "value": None}],
        "key": {"type": "STRING", "data": "Schlüssel"},
        "value": {"type": "JSON", "data": {"a": [1, None, "ü"]}},
        "timestamp": "2026-01-31T12:00:00Z",
    }
    status, answer = proxy.v3("POST", f"/topics/{topic}/records", record)
    assert status == 200
    assert answer == {
        "error_code": 200,
        "cluster_id": proxy.cluster_id,
        "topic_name": topic,
        "partition_id": 1,
        "offset": 0,
        "timestamp": "2026-01-31T12:00:00.000Z",
        "key": {"type": "STRING", "size": 10},
        "value": {"type": "JSON", "size": 19},
    }
    (read,) = consume(cluster, topic, 1, partitions=2)
    assert (read.key(), read.value()) == ("Schlüssel".encode(), '{"a":[1,null,"ü"]}'.encode())
    assert read.headers() == [("h", b"\x00\xff"), ("none", None)]
    assert read.timestamp()[1] == 1769860800000


def test_null_values_and_bytes(proxy: Proxy, cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    path = f"/topics/{topic}/records"
    for record in (
        {"key": {"type": "BINARY", "data": in_base64(b"k\x00")}, "value": {"type": "BINARY", "data": in_base64(b"")}},
        {"key": {"type": "STRING", "data": "k"}, "value": None},
        {"key": {"type": "STRING", "data": "k"}, "value": {"type": "JSON", "data": None}},
        {},
    ):
        assert proxy.v3("POST", path, record)[1]["error_code"] == 200
    read = [(one.key(), one.value()) for one in consume(cluster, topic, 4)]
    assert read == [(b"k\x00", b""), (b"k", None), (b"k", None), (None, None)]


def test_records_that_are_refused(proxy: Proxy, cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    for record, code, words in (
        ({"value": {"type": "BINARY", "data": "not base64"}}, 42207, "no base64"),
        ({"value": {"type": "BINARY", "data": 5}}, 42207, "must be a text"),
        ({"value": {"type": "STRING", "data": {}}}, 42207, "must be a text"),
        ({"value": {"type": "AVRO", "data": {}}}, 42206, "needs a schema"),
        ({"value": {"schema_id": 1, "data": {}}}, 42206, "needs a schema"),
        ({"value": {"data": "a"}}, 42206, "has no type of BINARY"),
        ({"value": {"type": "XML", "data": "a"}}, 42206, "The type XML is none of BINARY, JSON, STRING, AVRO"),
        ({"value": {"type": "STRING", "data": "\ud800"}}, 400, "no UTF-8"),
        ({"value": {"type": "JSON", "data": 5}, "other": 1}, 400, "Unrecognized field: other"),
        ({"partition_id": 7}, 40403, "does not host"),
        ({"partition_id": -1}, 400, "too small"),
        ({"partition_id": True}, 400, "must be a whole number"),
        ({"timestamp": "yesterday"}, 400, "no time"),
        ({"timestamp": "1900-01-01T00:00:00Z"}, 400, "before 1970"),
        ({"timestamp": "1970-01-01T00:00:00Z"}, 400, "takes for now"),
        ({"headers": [{"name": "a", "value": "?"}]}, 400, "no base64"),
        ({"headers": {}}, 400, "must be a list"),
        ({"value": {"type": "STRING", "data": "x" * (2 << 20)}}, 413, ""),
    ):
        status, answer = proxy.v3("POST", f"/topics/{topic}/records", record)
        assert (status, answer["error_code"]) == (int(str(code)[:3]), code), answer
        assert words in answer["message"]
    path = f"/topics/{topic}/records"
    assert proxy.v3("POST", path, b"{")[0] == 400
    assert proxy.v3("POST", path, b"") == (
        422,
        {"error_code": 422, "message": "Payload error. Request body is empty. Data is required."},
    )
    assert proxy.v3("POST", path, b'{"value": {"type": "JSON", "data": 1e400}}')[0] == 400
    assert proxy.v3("POST", "/topics/none/records", {})[1]["error_code"] == 40403
    status, answer = proxy.ask(
        "POST", f"/v3/clusters/{proxy.cluster_id}{path}", b"<a/>", {"Content-Type": "application/xml"}
    )
    assert (status, answer["error_code"]) == (415, 415)
    assert proxy.v3("POST", path, {"value": {"type": "JSON", "data": 1}})[1]["offset"] == 0


def test_a_stream_answers_each_record_in_order(proxy: Proxy, cluster: TestCluster) -> None:
    topic = cluster.create_topic(replicas=3)
    good = [text_record(str(number)) for number in range(5000)]
    parts = [*good[:2500], b'{"partition_id": 9}', b"\n", *good[2500:]]
    text = b"".join(parts)
    answers = proxy.stream(topic, (text[at : at + 1000] for at in range(0, len(text), 1000)))
    assert len(answers) == 5001
    assert answers.pop(2500)["error_code"] == 40403
    assert [one["offset"] for one in answers] == list(range(5000))
    assert [one.value() for one in consume(cluster, topic, 5000)] == [str(number).encode() for number in range(5000)]


def test_a_stream_ends_where_no_object_begins(proxy: Proxy, cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    answers = proxy.stream(topic, [text_record("a") + text_record("b") + b" oops " + text_record("c")])
    assert [one["error_code"] for one in answers] == [200, 200, 400]
    assert "no sequence of JSON objects" in answers[2]["message"]


def test_answers_come_while_the_request_is_open(proxy: Proxy, cluster: TestCluster) -> None:
    """A client that waits for each answer before it sends the next record gets them all."""
    import socket
    from urllib.parse import urlsplit

    topic = cluster.create_topic()
    proxy.v3("GET", "")
    at = urlsplit(proxy.url)
    assert at.hostname is not None and at.port is not None
    with socket.create_connection((at.hostname, at.port), timeout=60) as connection:
        head = f"POST /v3/clusters/{proxy.cluster_id}/topics/{topic}/records HTTP/1.1\r\nHost: {at.netloc}\r\n"
        head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        reader = connection.makefile("rb")
        for number in range(3):
            record = text_record(str(number))
            connection.sendall(b"%x\r\n%s\r\n" % (len(record), record))
            if not number:
                assert reader.readline().startswith(b"HTTP/1.1 200")
                while reader.readline() != b"\r\n":
                    pass
            size = int(reader.readline(), 16)
            assert json.loads(reader.read(size + 2))["offset"] == number
        connection.sendall(b"0\r\n\r\n")
        assert reader.readline() == b"0\r\n"


def test_a_batch_has_an_answer_for_each_id(proxy: Proxy, cluster: TestCluster) -> None:
    path = f"/topics/{cluster.create_topic()}/records:batch"
    value = {"type": "STRING", "data": "a"}
    entries = [{"id": "1", "value": value}, {"id": "2", "partition_id": 9}, {"id": "3", "value": value}]
    status, answer = proxy.v3("POST", path, {"entries": entries})
    assert status == 207
    assert [(one["id"], one["offset"]) for one in answer["successes"]] == [("1", 0), ("3", 1)]
    assert [(one["id"], one["error_code"]) for one in answer["failures"]] == [("2", 40403)]
    assert proxy.v3("POST", path, {"entries": [entries[0], entries[0]]})[1]["error_code"] == 42208
    assert proxy.v3("POST", path, {"entries": []})[0] == 400


def test_partitions_that_were_added_take_records(proxy: Proxy, cluster: TestCluster) -> None:
    """librdkafka knew the former partitions, and refused records for others for minutes."""
    topic = cluster.create_topic(partitions=1)
    assert proxy.v3("POST", f"/topics/{topic}/records", text_record("a"))[0] == 200
    assert proxy.v3("PATCH", f"/topics/{topic}", {"partitions_count": 3})[0] == 200
    record = {"partition_id": 2, "value": {"type": "STRING", "data": "b"}}
    assert proxy.v3("POST", f"/topics/{topic}/records", record)[1]["error_code"] == 200
    answer = proxy.v2("POST", f"/topics/{topic}/partitions/1", {"records": [{"value": 1}]}, sent=JSON_V2)[1]
    assert answer["offsets"][0]["error_code"] is None


def test_a_producer_that_was_closed_refuses_records(cluster: TestCluster) -> None:
    """It took them, and nobody ever answered."""
    topic = cluster.create_topic()

    async def send() -> None:
        async with RecordProducer({"bootstrap.servers": cluster.bootstrap_servers}, 30_000) as producer:
            sent = await producer.send(topic, NewRecord(None, b"a"))
        assert (await sent).offset == 0
        with pytest.raises(RestError, match="has not sent the record") as caught:
            await (await producer.send(topic, NewRecord(None, b"b")))
        assert caught.value.code == KAFKA_RETRIABLE_ERROR

    asyncio.run(send())


def test_records_that_a_closed_producer_could_not_send_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_producer, "_FLUSH_S", 0.1)

    async def send() -> None:
        async with RecordProducer({"bootstrap.servers": "127.0.0.1:1"}, 60_000) as producer:
            sent = await producer.send("t", NewRecord(None, b"a"))
        with pytest.raises(RestError) as caught:
            await sent
        assert caught.value.code == KAFKA_RETRIABLE_ERROR

    asyncio.run(send())


def test_a_leader_that_dies_during_a_stream_loses_no_acked_record(proxy: Proxy, cluster: TestCluster) -> None:
    topic = cluster.create_topic(replicas=3)
    count = 20_000
    is_running = threading.Event()
    is_killed = threading.Event()

    def parts() -> Iterator[bytes]:
        for number in range(count):
            if number == count // 4:
                is_running.set()
                assert is_killed.wait(60)
            yield text_record(str(number)) + b"\n"

    answers: list[dict[str, Any]] = []
    stream = threading.Thread(target=lambda: answers.extend(proxy.stream(topic, parts())))
    stream.start()
    assert is_running.wait(60)
    cluster.kill(cluster.leader_of(topic))
    is_killed.set()
    try:
        stream.join(120)
        assert not stream.is_alive() and len(answers) == count
    finally:
        cluster.heal()
    acked = {one["offset"]: str(number).encode() for number, one in enumerate(answers) if one["error_code"] == 200}
    assert len(acked) == count  # there were in-sync replicas in time
    read = {one.offset(): one.value() for one in consume(cluster, topic, max(acked) + 1)}
    assert {offset: read[offset] for offset in acked} == acked
    assert [read[offset] for offset in sorted(read)] == [str(number).encode() for number in range(count)]
