"""Version 2 beside a real cluster: topics, producing, and consumer instances through their lives."""

from __future__ import annotations

import time
from typing import Any

import pytest
from support.rest.instances import instance, read
from support.rest.proxy import BINARY_V2, JSON_V2, V2, Proxy, in_base64
from support.rest.proxy import proxy as proxy_of
from support.rest.records import consume, produce
from support.rest.waiting import until

from raftwerk.testkit.process_cluster import TestCluster, unique_topic

pytestmark = pytest.mark.process


def test_topics_and_brokers(proxy: Proxy, cluster: TestCluster) -> None:
    topic = cluster.create_topic(partitions=2, replicas=3)
    produce(cluster, topic, [b"a", b"b"], partition=1)
    assert proxy.v2("GET", "/brokers") == (200, {"brokers": [1, 2, 3]})
    assert topic in proxy.v2("GET", "/topics")[1]
    found = proxy.v2("GET", f"/topics/{topic}")[1]
    assert (found["name"], found["configs"]["cleanup.policy"]) == (topic, "delete")
    partitions = proxy.v2("GET", f"/topics/{topic}/partitions")[1]
    assert found["partitions"] == partitions and [one["partition"] for one in partitions] == [0, 1]
    assert proxy.v2("GET", f"/topics/{topic}/partitions/1") == (200, partitions[1])
    leaders = [one["broker"] for one in partitions[1]["replicas"] if one["leader"]]
    assert leaders == [partitions[1]["leader"]]
    offsets = proxy.v2("GET", f"/topics/{topic}/partitions/1/offsets")
    assert offsets == (200, {"beginning_offset": 0, "end_offset": 2})
    for path, code in (("/topics/none", 40401), (f"/topics/{topic}/partitions/9", 40402), ("/nothing", 404)):
        status, answer = proxy.v2("GET", path)
        assert (status, answer["error_code"]) == (404, code)


def test_records_are_produced(proxy: Proxy, cluster: TestCluster) -> None:
    topic = cluster.create_topic(partitions=2)
    body = {"records": [{"key": {"id": 1}, "value": [1, "ü"], "partition": 0}, {"value": None, "partition": 1}]}
    status, answer = proxy.v2("POST", f"/topics/{topic}", body, sent=JSON_V2)
    place = {"offset": 0, "error_code": None, "error": None}
    assert (status, answer["offsets"]) == (200, [{"partition": 0, **place}, {"partition": 1, **place}])
    binary = {"records": [{"value": in_base64(b"\x00\xff")}]}
    assert proxy.v2("POST", f"/topics/{topic}/partitions/1", binary, sent=BINARY_V2)[1]["offsets"][0]["offset"] == 1
    found = {
        (one.partition(), one.offset()): (one.key(), one.value()) for one in consume(cluster, topic, 3, partitions=2)
    }
    assert found == {(0, 0): (b'{"id":1}', '[1,"ü"]'.encode()), (1, 0): (None, None), (1, 1): (None, b"\x00\xff")}


def test_records_that_are_refused(proxy: Proxy, cluster: TestCluster) -> None:
    path = f"/topics/{cluster.create_topic()}"
    for where, body, sent, status, code in (
        ("/topics/none", {"records": [{}]}, JSON_V2, 404, 40401),
        (path, {"records": [{"partition": 7}]}, JSON_V2, 404, 40402),
        (f"{path}/partitions/7", {"records": [{}]}, JSON_V2, 404, 40402),
        (path, {"records": []}, JSON_V2, 422, 422),
        (path, {"records": [5]}, JSON_V2, 422, 422),
        (path, {"records": [{"valeu": 5}]}, JSON_V2, 422, 422),
        (path, {}, JSON_V2, 422, 422),
        (path, b"", JSON_V2, 422, 422),
        (path, b"{", JSON_V2, 400, 400),
        (path, {"records": [{"value": "?"}]}, BINARY_V2, 422, 422),
        (path, {"records": [{"value": 5}]}, BINARY_V2, 422, 422),
        (path, {"records": [{"value": 5}]}, "application/vnd.kafka.avro.v2+json", 415, 415),
        (path, {"records": [{"value": 5}]}, "text/plain", 415, 415),
    ):
        answer = proxy.v2("POST", where, body, sent=sent)
        assert (answer[0], answer[1]["error_code"]) == (status, code), (body, answer)
    assert proxy.v2("GET", path, accept="text/html")[1]["error_code"] == 406
    large = {"records": [{"value": "x" * (2 << 20)}, {"value": 1}]}
    status, answer = proxy.v2("POST", path, large, sent=JSON_V2)
    assert (status, [one["error_code"] for one in answer["offsets"]]) == (200, [413, None])


def test_an_instance_subscribes_reads_and_commits(proxy: Proxy, cluster: TestCluster) -> None:
    topic, group = cluster.create_topic(replicas=3), unique_topic("group")
    produce(cluster, topic, [b'{"a":1}', b"2", b"null"])
    path = instance(proxy, group, name="reader", **{"auto.commit.enable": "false"})
    assert proxy.v2("POST", f"/consumers/{group}", {"name": "reader"})[1]["error_code"] == 40902
    assert proxy.v2("GET", f"{path}/records")[1]["error_code"] == 40903
    assert proxy.v2("POST", f"{path}/subscription", {"topics": [topic]}) == (204, None)
    assert proxy.v2("GET", f"{path}/subscription") == (200, {"topics": [topic]})
    assigned = {"partitions": [{"topic": topic, "partition": 0}]}
    assert proxy.v2("POST", f"{path}/assignments", assigned)[1]["error_code"] == 40903
    rows = read(proxy, path, 3)
    assert [(one["offset"], one["key"], one["value"]) for one in rows] == [
        (0, None, {"a": 1}),
        (1, None, 2),
        (2, None, None),
    ]
    assert proxy.v2("GET", f"{path}/assignments") == (200, assigned)
    assert proxy.v2("GET", f"{path}/offsets", assigned) == (200, {"offsets": []})
    one = {"topic": topic, "partition": 0, "offset": 0, "metadata": "m"}
    assert proxy.v2("POST", f"{path}/offsets", {"offsets": [one]})[0] == 200
    assert proxy.v2("GET", f"{path}/offsets", assigned)[1]["offsets"] == [{**one, "offset": 1}]
    assert proxy.v2("POST", f"{path}/offsets")[0] == 200
    assert proxy.v2("GET", f"{path}/offsets", assigned)[1]["offsets"][0]["offset"] == 3
    assert proxy.v2("GET", f"{path}/records", accept=BINARY_V2)[1]["error_code"] == 40601
    assert proxy.v2("GET", f"{path}/records", accept="text/html")[1]["error_code"] == 406
    assert proxy.v2("DELETE", f"{path}/subscription") == (204, None)
    assert proxy.v2("GET", f"{path}/subscription") == (200, {"topics": []})
    assert proxy.v2("DELETE", path) == (204, None)
    for method, below in (("GET", "/records"), ("DELETE", ""), ("GET", "/subscription")):
        assert proxy.v2(method, path + below)[1]["error_code"] == 40403


def test_an_instance_is_deleted_right_after_it_was_unsubscribed(proxy: Proxy, cluster: TestCluster) -> None:
    """librdkafka's close waited without an end where the partitions were given back within it: in one of three."""
    topic = cluster.create_topic()
    produce(cluster, topic, [b"1"])
    for _ in range(6):
        path = instance(proxy, unique_topic("group"))
        assert proxy.v2("POST", f"{path}/subscription", {"topics": [topic]}) == (204, None)
        assert len(read(proxy, path, 1)) == 1
        assert proxy.v2("DELETE", f"{path}/subscription") == (204, None)
        began = time.monotonic()
        assert proxy.v2("DELETE", path) == (204, None)
        assert time.monotonic() - began < 9


def test_an_instance_is_assigned_and_seeks(proxy: Proxy, cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    produce(cluster, topic, [b"0", b"1", b"2", b"3"])
    partition = {"topic": topic, "partition": 0}
    path = instance(proxy, unique_topic("group"), format="binary")
    assert proxy.v2("POST", f"{path}/positions/beginning", {"partitions": [partition]})[1]["error_code"] == 40903
    assert proxy.v2("POST", f"{path}/positions/end", {"partitions": [partition]})[1]["error_code"] == 40903
    assert proxy.v2("POST", f"{path}/assignments", {"partitions": [partition, partition]}) == (204, None)
    assert proxy.v2("POST", f"{path}/subscription", {"topics": [topic]})[1]["error_code"] == 40903
    assert [one["value"] for one in read(proxy, path, 4, BINARY_V2)] == [in_base64(b"%d" % one) for one in range(4)]
    assert proxy.v2("POST", f"{path}/positions", {"offsets": [{**partition, "offset": 2}]}) == (204, None)
    assert [one["offset"] for one in read(proxy, path, 2, BINARY_V2)] == [2, 3]
    assert proxy.v2("POST", f"{path}/positions/beginning", {"partitions": [partition]}) == (204, None)
    assert [one["offset"] for one in proxy.v2("GET", f"{path}/records?max_bytes=2&timeout=5000", accept=V2)[1]] == [
        0,
        1,
    ]
    assert proxy.v2("POST", f"{path}/positions/end", {"partitions": [partition]}) == (204, None)
    produce(cluster, topic, [b"4"])
    assert [one["offset"] for one in read(proxy, path, 1, BINARY_V2)] == [4]
    at = {"timestamps": [{**partition, "timestamp": "2001-01-01T00:00:00Z"}]}
    assert proxy.v2("POST", f"{path}/positions", at) == (204, None)
    assert read(proxy, path, 5, BINARY_V2)[0]["offset"] == 0
    assert proxy.v2("DELETE", path) == (204, None)


def test_what_was_read_is_committed_when_an_instance_is_deleted(proxy: Proxy, cluster: TestCluster) -> None:
    topic, group = cluster.create_topic(), unique_topic("group")
    produce(cluster, topic, [b"0", b"1"])
    path = instance(proxy, group)
    proxy.v2("POST", f"{path}/subscription", {"topic_pattern": f"{topic}.*"})
    assert len(read(proxy, path, 2)) == 2
    assert proxy.v2("GET", f"{path}/subscription") == (200, {"topics": [topic]})
    proxy.v2("DELETE", path)
    lag = proxy.v3("GET", f"/consumer-groups/{group}/lags/{topic}/partitions/0")[1]
    assert (lag["current_offset"], lag["lag"]) == (2, 0)


def test_a_record_that_is_no_json_is_told_and_can_be_passed(proxy: Proxy, cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    produce(cluster, topic, [b"\xff", b"1"])
    path = instance(proxy, unique_topic("group"))
    proxy.v2("POST", f"{path}/assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    for _ in range(2):
        status, answer = proxy.v2("GET", f"{path}/records?timeout=5000", accept=JSON_V2)
        assert (status, answer["error_code"]) == (500, 50002) and f"{topic}-0 at offset 0 is no JSON" in answer[
            "message"
        ]
    proxy.v2("POST", f"{path}/positions", {"offsets": [{"topic": topic, "partition": 0, "offset": 1}]})
    assert [one["value"] for one in read(proxy, path, 1)] == [1]


@pytest.mark.parametrize("had_subscription", [False, True])
def test_an_assignment_that_grows_goes_on_where_it_was(
    proxy: Proxy, cluster: TestCluster, had_subscription: bool
) -> None:
    topic = cluster.create_topic(partitions=2)
    places = [{"topic": topic, "partition": one} for one in (0, 1)]
    produce(cluster, topic, [b"0"] * 6)
    path = instance(proxy, unique_topic("group"), **{"auto.offset.reset": "latest"})
    if had_subscription:
        assert proxy.v2("POST", f"{path}/subscription", {"topics": [topic]}) == (204, None)
        until(lambda: _read_nothing(proxy, path) and proxy.v2("GET", f"{path}/assignments")[1]["partitions"] == places)
        assert proxy.v2("DELETE", f"{path}/subscription") == (204, None)
    assert proxy.v2("POST", f"{path}/assignments", {"partitions": places[:1]}) == (204, None)
    assert proxy.v2("POST", f"{path}/positions", {"offsets": [{**places[0], "offset": 0}]}) == (204, None)
    rows: list[Any] = []
    while len(rows) < 2:
        rows += proxy.v2("GET", f"{path}/records?timeout=5000&max_bytes=1", accept=JSON_V2)[1]
    assert proxy.v2("POST", f"{path}/assignments", {"partitions": places}) == (204, None)
    assert proxy.v2("GET", f"{path}/assignments") == (200, {"partitions": places})
    rows += read(proxy, path, 4)
    assert [one["offset"] for one in rows] == list(range(6))
    assert proxy.v2("DELETE", path) == (204, None)


def test_a_pattern_matches_whole_names_only(proxy: Proxy, cluster: TestCluster) -> None:
    """As Java's consumer, and no internal topics."""
    name = unique_topic("orders")
    for topic in (name, f"{name}-dlq", f"x{name}"):
        cluster.create_topic(topic)
        produce(cluster, topic, [b"1"])
    path = instance(proxy, unique_topic("group"))
    assert proxy.v2("POST", f"{path}/subscription", {"topic_pattern": f"{name}|__consumer.*"}) == (204, None)
    assert [one["topic"] for one in read(proxy, path, 1)] == [name]
    assert _read_nothing(proxy, path)
    assert proxy.v2("GET", f"{path}/subscription") == (200, {"topics": [name]})
    assert proxy.v2("DELETE", path) == (204, None)


def test_small_reads_let_another_member_join(proxy: Proxy, cluster: TestCluster) -> None:
    topic, group = cluster.create_topic(partitions=2), unique_topic("group")
    for partition in (0, 1):
        produce(cluster, topic, [b"1"] * 2000, partition=partition)
    first, second = instance(proxy, group), instance(proxy, group)
    assert proxy.v2("POST", f"{first}/subscription", {"topics": [topic]}) == (204, None)
    small = f"{first}/records?timeout=5000&max_bytes=1"
    until(lambda: bool(proxy.v2("GET", small, accept=JSON_V2)[1]))
    assert proxy.v2("POST", f"{second}/subscription", {"topics": [topic]}) == (204, None)
    for _ in range(200):
        assert len(proxy.v2("GET", small, accept=JSON_V2)[1]) <= 1
        assert proxy.v2("GET", f"{second}/records?timeout=100&max_bytes=1", accept=JSON_V2)[0] == 200
        if proxy.v2("GET", f"{second}/assignments")[1]["partitions"]:
            break
    else:
        raise AssertionError("the second member has no partition")
    for path in (first, second):
        assert proxy.v2("DELETE", path) == (204, None)


def _read_nothing(proxy: Proxy, path: str) -> bool:
    return proxy.v2("GET", f"{path}/records?timeout=200", accept=JSON_V2) == (200, [])


def test_instances_that_cannot_be_created(proxy: Proxy) -> None:
    for body, status, code in (
        ({"format": "avro"}, 422, 42204),
        ({"format": "xml"}, 422, 42204),
        ({"auto.offset.reset": "middle"}, 422, 42204),
        ({"auto.commit.enable": "perhaps"}, 422, 42204),
        ({"fetch.min.bytes": "many"}, 422, 42204),
        ({"consumer.request.timeout.ms": 10**12}, 422, 42204),
        ({"name": 5}, 422, 422),
        ({"nmae": "a"}, 422, 422),
        (b"[", 400, 400),
    ):
        answer = proxy.v2("POST", "/consumers/g", body)
        assert (answer[0], answer[1]["error_code"]) == (status, code), (body, answer)


def test_an_instance_that_nobody_uses_expires(cluster: TestCluster) -> None:
    with proxy_of(cluster, "--consumer-timeout-ms", "400", "--max-consumers", "1") as running:
        path = instance(running, unique_topic("group"))
        assert running.v2("POST", "/consumers/g", {})[1]["error_code"] == 429
        deadline = time.monotonic() + 30
        while running.v2("POST", "/consumers/g", {})[0] != 200:  # its place is free
            assert time.monotonic() < deadline
        assert running.v2("GET", f"{path}/assignments")[1]["error_code"] == 40403


def test_two_instances_of_a_group_share_partitions(proxy: Proxy, cluster: TestCluster) -> None:
    topic, group = cluster.create_topic(partitions=2), unique_topic("group")
    paths = [instance(proxy, group), instance(proxy, group)]
    for path in paths:
        proxy.v2("POST", f"{path}/subscription", {"topics": [topic]})
    deadline = time.monotonic() + 60
    while True:
        for path in paths:
            proxy.v2("GET", f"{path}/records?timeout=100", accept=JSON_V2)
        owned = [proxy.v2("GET", f"{path}/assignments")[1]["partitions"] for path in paths]
        if sorted(map(len, owned)) == [1, 1]:
            break
        assert time.monotonic() < deadline
    for path in paths:
        proxy.v2("DELETE", path)
