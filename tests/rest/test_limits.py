"""What a proxy does when clients send too much, when nobody can answer, and when it is told to stop."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from support.e2e.command import fails, fails_usage, ok
from support.rest.proxy import JSON_V2, Proxy, text_record
from support.rest.proxy import proxy as proxy_of

from raftwerk.testkit.process_cluster import TestCluster

pytestmark = pytest.mark.process


def connected(proxy: Proxy) -> socket.socket:
    """A connection to the proxy."""
    at = urlsplit(proxy.url)
    return socket.create_connection((at.hostname or "", at.port or 0), timeout=60)


def test_bodies_and_records_that_are_too_long(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    with proxy_of(cluster, "--max-body-bytes", "2048") as running:
        long = {"records": [{"value": "x" * 3000}]}
        assert running.v2("POST", f"/topics/{topic}", long, sent=JSON_V2)[1]["error_code"] == 413
        answers = running.stream(topic, [text_record("short"), text_record("x" * 3000)])
        assert [one["error_code"] for one in answers] in ([200, 413], [200, 200])  # as it was cut on its way
        answers = running.stream(topic, [text_record("short")] * 1000)  # a stream may be longer
        assert {one["error_code"] for one in answers} == {200}


def test_too_many_requests_at_the_same_time(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    with proxy_of(cluster, "--max-requests", "1") as running:
        running.v3("GET", "")
        is_open, may_end = threading.Event(), threading.Event()

        def parts() -> Iterator[bytes]:
            yield text_record("first")
            is_open.set()
            assert may_end.wait(60)

        stream = threading.Thread(target=running.stream, args=(topic, parts()))
        stream.start()
        assert is_open.wait(60)
        status = 0
        while status != 429:  # until the proxy has read the beginning of the stream
            status, answer = running.ask("GET", "/topics")
        assert answer["error_code"] == 429
        may_end.set()
        stream.join(60)
        assert running.ask("GET", "/topics")[0] == 200


def test_what_is_no_http_ends_nothing(proxy: Proxy) -> None:
    for sent in (b"\x00\x00\x00\x10garbage\r\n\r\n", b"GET / HTTP/1.1\r\nHost\r\n\r\n"):
        with connected(proxy) as connection:
            connection.sendall(sent)
            assert b"400" in connection.recv(100)
    for path in ("/%00", "/v3/clusters/%ff%fe", "/v3//clusters", "/topics/%2F", f"/topics/{'x' * 5000}"):
        status, _ = proxy.ask("GET", path)
        assert 400 <= status < 500, path
    assert proxy.ask("GET", f"/topics?{'a=1&' * 500}")[0] == 200
    assert proxy.ask("GET", "/")[0] == 200


def test_clients_that_go_away_end_nothing(proxy: Proxy, cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    proxy.v3("GET", "")
    path = f"/v3/clusters/{proxy.cluster_id}/topics/{topic}/records"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    for _ in range(5):
        with connected(proxy) as connection:
            record = text_record("a")
            connection.sendall(head.encode() + b"%x\r\n%s\r\n" % (len(record), record))
    assert proxy.v3("POST", path.partition(proxy.cluster_id)[2], text_record("b"))[1]["error_code"] == 200


def test_a_proxy_stops_with_streams_open(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    with proxy_of(cluster) as running:
        running.v3("GET", "")
        connection = connected(running)
        record = text_record("a")
        head = f"POST /v3/clusters/{running.cluster_id}/topics/{topic}/records HTTP/1.1\r\nHost: x\r\n"
        head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode() + b"%x\r\n%s\r\n" % (len(record), record))
        assert connection.recv(12) == b"HTTP/1.1 200"
    with connection:
        rest = b""
        while more := connection.recv(4096):
            rest += more
        assert b'"offset":0' in rest and rest.endswith(b"0\r\n\r\n")


def test_no_broker_answers() -> None:
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    with TestCluster.start(1, settings=settings) as cluster:
        topic = cluster.create_topic()
        with proxy_of(cluster, "--delivery-timeout-ms", "1000") as running:
            running.v3("GET", "")
            path = running.v2("POST", "/consumers/g", {})[1]["base_uri"].removeprefix(running.url)
            assigned = {"partitions": [{"topic": topic, "partition": 0}]}
            assert running.v2("POST", f"{path}/assignments", assigned)[0] == 204
            running.v2("GET", f"{path}/records")
            cluster.kill(1)
            for method, where, body in (
                ("GET", f"/v3/clusters/{running.cluster_id}/topics", None),
                ("GET", "/topics", None),
                ("GET", f"/topics/{topic}", None),
                ("POST", f"/topics/{topic}", {"records": [{"value": "YQ=="}]}),
            ):
                status, answer = running.ask(method, where, body)
                assert (status, answer["error_code"]) == (503, 50302), answer
                assert "no broker answers" in answer["message"]
            status = 200
            while status == 200:  # until librdkafka has noticed
                status, answer = running.v2("GET", f"{path}/records?timeout=500")
            assert (status, answer["error_code"]) == (503, 50302)
            cluster.start_node(1)
            assert running.ask("GET", f"/topics/{topic}")[0] == 200
        cluster.kill(1)
        told = fails(1, "rest", "--port", "0", "-b", cluster.bootstrap_servers)
        assert "no broker answers" in told


def test_the_command_tells_what_is_wrong(proxy: Proxy, cluster: TestCluster) -> None:
    port = proxy.url.rpartition(":")[2]
    told = fails(1, "rest", "--port", port, "-b", cluster.bootstrap_servers)
    assert told == f"Error: cannot listen on 127.0.0.1:{port}: address already in use; --port names another one"
    assert "is not host:port" in fails(2, "rest", "--port", "0", "-b", "http://x/")
    assert "--max-consumers" in fails_usage("rest", "--max-consumers", "-1")
    assert "curl -s localhost:8082/topics" in ok("rest", "--help")
