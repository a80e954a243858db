"""Version 3 beside a real cluster: what is described, created, changed and deleted."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer
from support.e2e.command import ok
from support.rest.proxy import Proxy, text_record
from support.rest.records import produce
from support.rest.waiting import until

from raftwerk.testkit.process_cluster import TestCluster, unique_topic

pytestmark = pytest.mark.process


def test_clusters(proxy: Proxy) -> None:
    status, found = proxy.ask("GET", "/v3/clusters")
    assert (status, found["kind"], found["metadata"]["next"]) == (200, "KafkaClusterList", None)
    (cluster,) = found["data"]
    url = f"{proxy.url}/v3/clusters/{cluster['cluster_id']}"
    assert cluster["kind"] == "KafkaCluster"
    assert cluster["metadata"] == {"self": url, "resource_name": f"crn:///kafka={cluster['cluster_id']}"}
    assert cluster["topics"] == {"related": f"{url}/topics"}
    assert proxy.v3("GET", "") == (200, cluster)
    status, wrong = proxy.ask("GET", "/v3/clusters/other/topics")
    assert (status, wrong) == (404, {"error_code": 404, "message": "Cluster other cannot be found."})


def test_brokers(proxy: Proxy) -> None:
    status, found = proxy.v3("GET", "/brokers")
    assert (status, [one["broker_id"] for one in found["data"]]) == (200, [1, 2, 3])
    assert found["data"][0]["kind"] == "KafkaBroker"
    assert proxy.v3("GET", "/brokers/2") == (200, found["data"][1])
    assert proxy.v3("GET", "/brokers/9")[0] == 404
    assert proxy.v3("GET", "/brokers/x")[0] == 404


def test_configurations_of_brokers(proxy: Proxy) -> None:
    status, found = proxy.v3("GET", "/brokers/1/configs")
    by_name = {one["name"]: one for one in found["data"]}
    assert (status, found["kind"]) == (200, "KafkaBrokerConfigList")
    least = by_name["min.insync.replicas"]
    assert (least["value"], least["source"], least["is_default"]) == ("2", "DYNAMIC_DEFAULT_BROKER_CONFIG", False)
    assert {"name": "min.insync.replicas", "value": "2", "source": "STATIC_BROKER_CONFIG"} in least["synonyms"]
    assert {"name": "min.insync.replicas", "value": "1", "source": "DEFAULT_CONFIG"} in least["synonyms"]
    assert proxy.v3("PUT", "/brokers/1/configs/log.cleaner.threads", {"value": "2"})[0] == 204
    changed = proxy.v3("GET", "/brokers/1/configs/log.cleaner.threads")[1]
    assert (changed["value"], changed["source"]) == ("2", "DYNAMIC_BROKER_CONFIG")
    assert proxy.v3("DELETE", "/brokers/1/configs/log.cleaner.threads")[0] == 204
    assert (
        proxy.v3("POST", "/broker-configs:alter", {"data": [{"name": "log.cleaner.threads", "value": "3"}]})[0] == 204
    )

    def of_the_cluster() -> dict[str, Any]:
        return {one["name"]: one for one in proxy.v3("GET", "/broker-configs")[1]["data"]}

    until(lambda: set(of_the_cluster()) == {"log.cleaner.threads", "min.insync.replicas"})
    row = of_the_cluster()["log.cleaner.threads"]
    assert (row["kind"], row["name"], row["value"]) == ("KafkaClusterConfig", "log.cleaner.threads", "3")
    assert proxy.v3("GET", "/broker-configs/log.cleaner.threads") == (200, row)
    assert proxy.v3("DELETE", "/broker-configs/log.cleaner.threads")[0] == 204


def test_topics_are_created_described_and_deleted(proxy: Proxy) -> None:
    name = unique_topic("rest")
    body = {
        "topic_name": name,
        "partitions_count": 2,
        "replication_factor": 3,
        "configs": [{"name": "cleanup.policy", "value": "compact"}],
    }
    status, created = proxy.v3("POST", "/topics", body)
    assert (status, created["kind"], created["partitions_count"], created["replication_factor"]) == (
        201,
        "KafkaTopic",
        2,
        3,
    )
    assert proxy.v3("GET", f"/topics/{name}") == (200, created)
    assert created in proxy.v3("GET", "/topics")[1]["data"]
    partitions = proxy.v3("GET", f"/topics/{name}/partitions")[1]["data"]
    assert [one["partition_id"] for one in partitions] == [0, 1]
    assert proxy.v3("GET", f"/topics/{name}/partitions/1") == (200, partitions[1])
    leader = int(partitions[0]["leader"]["related"].rpartition("/")[2])
    replicas = proxy.v3("GET", f"/topics/{name}/partitions/0/replicas")[1]["data"]
    assert sorted(one["broker_id"] for one in replicas) == [1, 2, 3]
    assert [one["broker_id"] for one in replicas if one["is_leader"]] == [leader]
    assert all(one["is_in_sync"] for one in replicas)
    assert proxy.v3("GET", f"/topics/{name}/partitions/0/replicas/{leader}")[1]["is_leader"] is True
    of_broker = proxy.v3("GET", f"/brokers/{leader}/partition-replicas")[1]["data"]
    assert (name, 0) in [(one["topic_name"], one["partition_id"]) for one in of_broker]
    assert proxy.v3("PATCH", f"/topics/{name}", {"partitions_count": 4})[1]["partitions_count"] == 4
    assert proxy.v3("DELETE", f"/topics/{name}") == (204, None)
    assert proxy.v3("GET", f"/topics/{name}")[1]["error_code"] == 40403
    assert proxy.v3("DELETE", f"/topics/{name}")[1]["error_code"] == 40403


def test_topics_that_cannot_be_created(proxy: Proxy, cluster: TestCluster) -> None:
    there = cluster.create_topic()
    for body, status, code, words in (
        ({"topic_name": there}, 400, 40002, "already exists"),
        ({"topic_name": "a b"}, 400, 40002, "a b"),
        ({"topic_name": "new", "replication_factor": 9}, 400, 40002, "9"),
        ({"topic_name": "new", "configs": [{"name": "no.such", "value": "1"}]}, 400, 40002, "no.such"),
        ({"topic_name": "new", "partitions_count": "2"}, 400, 400, "partitions_count must be a whole number"),
        ({"topic_name": "new", "partitions": 2}, 400, 400, "Unrecognized field: partitions"),
        ({"topic_name": "new", "partitions_count": 2**40}, 400, 400, "too large"),
        ({"partitions_count": 2}, 400, 400, "has no topic_name"),
        ([], 400, 400, "must be an object"),
        (b"{", 400, 400, "no JSON"),
        (b"", 400, 400, "Data is required"),
    ):
        answer = proxy.v3("POST", "/topics", body)
        assert (answer[0], answer[1]["error_code"]) == (status, code), (body, answer)
        assert words in answer[1]["message"], (body, answer)
    status, tried = proxy.v3("POST", "/topics", {"topic_name": "tried", "partitions_count": 2, "validate_only": True})
    assert (status, tried["topic_name"]) == (200, "tried")
    assert proxy.v3("GET", "/topics/tried")[0] == 404
    assigned = {"topic_name": unique_topic("rest"), "replicas_assignments": {"0": [2, 3], "1": [3, 1]}}
    assert proxy.v3("POST", "/topics", assigned)[0] == 201
    replicas = proxy.v3("GET", f"/topics/{assigned['topic_name']}/partitions/1/replicas")[1]["data"]
    assert [one["broker_id"] for one in replicas] == [3, 1]


def test_configurations_of_topics(proxy: Proxy, cluster: TestCluster) -> None:
    path = f"/topics/{cluster.create_topic()}/configs"
    row = proxy.v3("GET", f"{path}/cleanup.policy")[1]
    assert (row["value"], row["is_default"], row["source"]) == ("delete", True, "DEFAULT_CONFIG")
    assert row in proxy.v3("GET", path)[1]["data"]
    assert proxy.v3("PUT", f"{path}/cleanup.policy", {"value": "compact"}) == (204, None)
    # The broker that is asked may hear of a change a moment after the controller has answered.
    until(lambda: proxy.v3("GET", f"{path}/cleanup.policy")[1]["value"] == "compact")
    row = proxy.v3("GET", f"{path}/cleanup.policy")[1]
    assert (row["is_default"], row["source"]) == (False, "DYNAMIC_TOPIC_CONFIG")
    changes = [{"name": "cleanup.policy", "operation": "DELETE"}, {"name": "retention.ms", "value": "7000"}]
    assert proxy.v3("POST", f"{path}:alter", {"data": changes, "validate_only": True}) == (204, None)
    assert proxy.v3("GET", f"{path}/cleanup.policy")[1]["value"] == "compact"
    assert proxy.v3("POST", f"{path}:alter", {"data": changes}) == (204, None)
    until(lambda: proxy.v3("GET", f"{path}/cleanup.policy")[1]["value"] == "delete")
    until(lambda: proxy.v3("GET", f"{path}/retention.ms")[1]["value"] == "7000")
    assert proxy.v3("DELETE", f"{path}/retention.ms") == (204, None)
    until(lambda: proxy.v3("GET", f"{path}/retention.ms")[1]["is_default"] is True)
    assert proxy.v3("GET", f"{path}/no.such")[0] == 404
    assert proxy.v3("DELETE", f"{path}/no.such")[0] == 404
    assert proxy.v3("PUT", f"{path}/retention.ms", {"value": "long"})[1]["error_code"] == 40002
    assert proxy.v3("GET", "/topics/none/configs")[1]["error_code"] == 40403


def test_configurations_of_all_topics_and_brokers(proxy: Proxy, cluster: TestCluster) -> None:
    topics = [cluster.create_topic() for _ in range(25)]  # more than are asked for at a time
    status, answer = proxy.v3("GET", "/topics/-/configs")
    assert (status, answer["kind"], answer["metadata"]["next"]) == (200, "KafkaTopicConfigList", None)
    one = proxy.v3("GET", f"/topics/{topics[0]}/configs")[1]["data"]
    assert [row for row in answer["data"] if row["topic_name"] == topics[0]] == one
    assert set(topics) <= {row["topic_name"] for row in answer["data"]}
    status, answer = proxy.v3("GET", "/brokers/-/configs")
    assert (status, answer["kind"]) == (200, "KafkaBrokerConfigList")
    assert {row["broker_id"] for row in answer["data"]} == {1, 2, 3}
    assert proxy.v3("GET", "/brokers/2/configs/node.id")[1] in answer["data"]


def test_reassignments(proxy: Proxy, cluster: TestCluster) -> None:
    name = unique_topic("rest")
    assigned = {"topic_name": name, "replicas_assignments": {"0": [1, 2], "1": [1, 2]}}
    assert proxy.v3("POST", "/topics", assigned)[0] == 201
    path = f"/topics/{name}/partitions"
    assert proxy.v3("GET", f"{path}/-/reassignment")[1]["data"] == []
    assert proxy.v3("GET", f"{path}/0/reassignment")[0] == 404
    cluster.kill(3)  # so that what is moved there is under way until it runs again
    try:
        ok("partitions", "reassign", f"{name}-0=1,3", "-b", cluster.bootstrap_servers)
        status, found = proxy.v3("GET", f"{path}/0/reassignment")
        assert (status, found["kind"]) == (200, "KafkaReassignment"), found
        assert (found["adding_replicas"], found["removing_replicas"]) == ([3], [2])
        assert found["metadata"]["resource_name"].endswith(f"/topic={name}/partition=0/reassignment")
        replicas = proxy.follow(found["replicas"])["data"]
        assert sorted(one["broker_id"] for one in replicas) == [1, 2, 3]
        assert proxy.v3("GET", f"{path}/-/reassignment")[1]["data"] == [found]
        assert found in proxy.v3("GET", "/topics/-/partitions/-/reassignment")[1]["data"]
        assert proxy.v3("GET", f"{path}/1/reassignment")[0] == 404
        assert proxy.v3("GET", "/topics/none/partitions/-/reassignment")[1]["error_code"] == 40403
    finally:
        cluster.heal()
    until(lambda: proxy.v3("GET", f"{path}/-/reassignment")[1]["data"] == [])


def test_consumer_groups(proxy: Proxy, cluster: TestCluster) -> None:
    topic, group = cluster.create_topic(partitions=2, replicas=3), unique_topic("group")
    produce(cluster, topic, [b"a", b"b", b"c"])
    assert proxy.v3("GET", f"/consumer-groups/{group}")[0] == 404
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "client.id": "reader", "enable.auto.commit": False})
    consumer.subscribe([topic])
    read = 0
    while read < 2:
        read += len(consumer.consume(1, 1.0))
    try:
        uncommitted = proxy.v3("GET", f"/consumer-groups/{group}/lag-summary")[1]
        assert (uncommitted["max_lag"], uncommitted["total_lag"], uncommitted["partitions_without_commit"]) == (
            None,
            0,
            2,
        )
        lags = json.loads(ok("groups", "lag", group, "-b", cluster.bootstrap_servers, "--json"))["partitions"]
        assert [(one["partition"], one["end"], one["lag"]) for one in lags] == [(0, 3, None), (1, 0, None)]
        consumer.commit(asynchronous=False)
        status, found = proxy.v3("GET", f"/consumer-groups/{group}")
        assert (status, found["kind"], found["state"], found["is_simple"], found["type"]) == (
            200,
            "KafkaConsumerGroup",
            "STABLE",
            False,
            "CLASSIC",
        )
        assert found in proxy.v3("GET", "/consumer-groups")[1]["data"]
        (member,) = proxy.v3("GET", f"/consumer-groups/{group}/consumers")[1]["data"]
        assert (member["client_id"], member["instance_id"]) == ("reader", None)
        path = f"/consumer-groups/{group}/consumers/{member['consumer_id']}"
        assert proxy.v3("GET", path) == (200, member)
        assigned = proxy.v3("GET", f"{path}/assignments")[1]["data"]
        assert [(one["topic_name"], one["partition_id"]) for one in assigned] == [(topic, 0), (topic, 1)]
        assert proxy.v3("GET", f"{path}/assignments/{topic}/partitions/1") == (200, assigned[1])
        lag, silent = proxy.v3("GET", f"/consumer-groups/{group}/lags")[1]["data"]
        assert (silent["partition_id"], silent["current_offset"], silent["lag"]) == (1, None, None)
        assert (lag["partition_id"], lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (0, 2, 3, 1)
        assert (lag["consumer_id"], lag["client_id"]) == (member["consumer_id"], "reader")
        assert proxy.v3("GET", f"/consumer-groups/{group}/lags/{topic}/partitions/0") == (200, lag)
        summary = proxy.v3("GET", f"/consumer-groups/{group}/lag-summary")[1]
        assert (summary["max_lag"], summary["total_lag"], summary["max_lag_topic_name"]) == (1, 1, topic)
        assert summary["partitions_without_commit"] == 1
    finally:
        consumer.close()
    until(lambda: proxy.v3("GET", f"/consumer-groups/{group}")[1]["state"] == "EMPTY")
    assert proxy.v3("GET", f"/consumer-groups/{group}/consumers")[1]["data"] == []


def test_members_of_groups_of_the_new_protocol(proxy: Proxy, cluster: TestCluster) -> None:
    topic, group = cluster.create_topic(), unique_topic("group") + "/+ ?"  # as a random member id may have a slash
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "group.protocol": "consumer"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    produce(cluster, topic, [b"a"])
    while not consumer.consume(1, 1.0):
        pass
    try:
        found = proxy.v3("GET", f"/consumer-groups/{quote(group, safe='')}")[1]
        assert (found["type"], found["state"]) == ("CONSUMER", "STABLE")
        (member,) = proxy.follow(found["consumers"])["data"]
        assert [one["topic_name"] for one in proxy.follow(member["assignments"])["data"]] == [topic]
    finally:
        consumer.close()


def test_a_command_reads_what_was_produced(proxy: Proxy, cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    status, answer = proxy.v3("POST", f"/topics/{topic}/records", text_record("hello"))
    assert (status, answer["error_code"], answer["offset"]) == (200, 200, 0)
    assert ok("consume", topic, "-n", "1", "-b", cluster.bootstrap_servers) == "hello\n"
