"""What the console shows and changes of transactions, rights, users, quotas, sizes and moves, over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from support.console.console_process import ask, console, events
from support.e2e.command import ok
from support.e2e.transactions import STRANGER, TIMEOUT_S, leave_hanging, open_transaction, until

from raftwerk.cluster.client.admin_client import AdminClient
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.testkit.process_cluster import TestCluster, unique_topic

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        # A record may be written in a transaction that no coordinator knows.
        "transaction.partition.verification.enable": "false",
    }
    with TestCluster.start(3, settings=settings) as running:
        yield running


def got(url: str, path: str) -> Any:
    status, answer = ask(url, path)
    assert status == 200, answer
    return answer


def changed(url: str, path: str, **fields: Any) -> Any:
    status, answer = ask(url, path, fields)
    assert status == 200, answer
    return answer


def refusal(url: str, path: str, **fields: Any) -> str:
    status, answer = ask(url, path, fields)
    assert 400 <= status < 500, (status, answer)
    return str(answer["error"])


def shows(read: Callable[[], Any], wanted: Any) -> None:
    """Wait until it is read: each broker shows a change when it has heard of it."""
    with contextlib.suppress(AssertionError):
        until(lambda: read() == wanted)
    assert read() == wanted


def test_an_open_transaction_is_shown_and_ended(cluster: TestCluster, url: str) -> None:
    topic = cluster.create_topic(partitions=1, replicas=3)
    writer = open_transaction(cluster.bootstrap_servers, topic)
    name = f"{topic}-id"
    listed = {one["transactional_id"]: one["state"] for one in got(url, "/api/transactions")["transactions"]}
    assert listed[name] == "Ongoing"
    planned = changed(url, f"/api/transactions/{name}/terminate")
    assert planned["before"]["partitions"] == [{"topic": topic, "partition": 0}]
    assert not planned["executed"] and got(url, f"/api/transactions/{name}")["state"] == "Ongoing"
    assert changed(url, f"/api/transactions/{name}/terminate", execute=True)["executed"]
    assert got(url, f"/api/transactions/{name}")["partitions"] == []
    with pytest.raises(KafkaException):
        writer.commit_transaction(TIMEOUT_S)
    assert "no such transactional id" in ask(url, "/api/transactions/nobody")[1]["error"]


def test_a_hanging_transaction_is_found_and_aborted(cluster: TestCluster, url: str) -> None:
    topic = cluster.create_topic(partitions=1, replicas=3)
    leave_hanging(cluster.bootstrap_servers, topic)
    (found,) = got(url, "/api/hanging-transactions")["transactions"]
    place = {"topic": topic, "partition": 0, "start_offset": 0}
    assert {**place, "producer_id": STRANGER}.items() <= found.items()
    planned = changed(url, "/api/hanging-transactions/abort", **place)
    assert planned == {"executed": False, "transaction": found}
    assert changed(url, "/api/hanging-transactions/abort", **place, execute=True)["transaction"] == found
    assert got(url, "/api/hanging-transactions?older_than_s=0")["transactions"] == []
    assert "no transaction is open" in ask(url, "/api/hanging-transactions/abort", place)[1]["error"]


def test_acls_are_added_and_removed_after_a_look(cluster: TestCluster, url: str) -> None:
    name = unique_topic("secret")
    entry = {"permission": "allow", "principal": "alice", "resource_type": "topic", "resource_name": name}

    def entries() -> list[dict[str, str]]:
        return [one for one in got(url, "/api/acls")["acls"] if one["resource_name"] == name]

    planned = changed(url, "/api/acls", **entry, operations=["consume"], pattern="prefix")
    assert [one["operation"] for one in planned["acls"]] == ["read", "describe"]
    assert (planned["executed"], entries()) == (False, [])
    assert changed(url, "/api/acls", **entry, operations=["consume"], pattern="prefix", execute=True)["executed"]
    shows(lambda: sorted(one["operation"] for one in entries()), ["describe", "read"])
    shown = entries()
    assert {(one["principal"], one["pattern"], one["host"]) for one in shown} == {("User:alice", "prefix", "*")}
    assert changed(url, "/api/acls/remove", **shown[0]) == {"executed": False, "acls": shown[:1]}
    assert changed(url, "/api/acls/remove", **shown[0], execute=True) == {"executed": True, "acls": shown[:1]}
    shows(entries, shown[1:])
    assert "no such entry" in refusal(url, "/api/acls/remove", **shown[0], execute=True)
    assert "nobody can" in refusal(url, "/api/acls", **entry, operations=["cluster-action"])
    assert "is no operation" in refusal(url, "/api/acls", **entry, operations=["fly"])
    assert "mean nothing there" in refusal(
        url, "/api/acls", **{**entry, "resource_type": "cluster"}, operations=["consume"]
    )
    assert "resource_type is one of" in refusal(
        url, "/api/acls", **{**entry, "resource_type": "any"}, operations=["all"]
    )


def test_users_get_and_lose_passwords(cluster: TestCluster, url: str) -> None:
    name = unique_topic("user")

    def mine() -> list[tuple[str, int]]:
        rows = got(url, "/api/users")["users"]
        return [(one["mechanism"], one["iterations"]) for one in rows if one["user"] == name]

    told = changed(url, "/api/users", user=name, password="p", mechanism="SCRAM-SHA-256", iterations=8192)["done"]
    assert told == f"added the password of {name} for SCRAM-SHA-256"
    shows(lambda: len(mine()), 1)
    told = changed(url, "/api/users", user=name, password="q", mechanism="SCRAM-SHA-256")["done"]
    assert told == f"changed the password of {name} for SCRAM-SHA-256"
    shows(mine, [("SCRAM-SHA-256", 8192)])
    assert changed(url, f"/api/users/{name}/remove", mechanism="SCRAM-SHA-256")["executed"] is False
    assert mine()
    assert changed(url, f"/api/users/{name}/remove", mechanism="SCRAM-SHA-256", execute=True)["executed"]
    shows(mine, [])
    assert "has no password" in refusal(url, f"/api/users/{name}/remove", mechanism="SCRAM-SHA-256")
    assert "iterations are" in refusal(url, "/api/users", user=name, password="p", iterations=1)
    assert "mechanism is one of" in refusal(url, "/api/users", user=name, password="p", mechanism="PLAIN")
    assert "password is missing" in refusal(url, "/api/users", user=name)


def test_quotas_are_set_and_removed_after_a_look(cluster: TestCluster, url: str) -> None:
    entity = {"user": unique_topic("user"), "client-id": None}

    def mine() -> list[dict[str, float]]:
        return [one["quotas"] for one in got(url, "/api/quotas")["quotas"] if one["entity"] == entity]

    wanted = {"producer_byte_rate": 1000, "consumer_byte_rate": 2000}
    planned = changed(url, "/api/quotas", entity=entity, set=wanted)
    assert planned["quotas"][0] == {"quota": "producer_byte_rate", "from": None, "to": 1000}
    assert mine() == []
    changed(url, "/api/quotas", entity=entity, set=wanted, execute=True)
    shows(mine, [wanted])
    removing = changed(url, "/api/quotas", entity=entity, set={"producer_byte_rate": None}, execute=True)
    assert removing["quotas"] == [{"quota": "producer_byte_rate", "from": 1000, "to": None}]
    shows(mine, [{"consumer_byte_rate": 2000}])
    assert "did you mean" in refusal(url, "/api/quotas", entity=entity, set={"producer_byte_rat": 1})
    assert "is a number" in refusal(url, "/api/quotas", entity=entity, set={"producer_byte_rate": "fast"})
    assert "an address has quotas" in refusal(url, "/api/quotas", entity={"ip": "::1", "user": "a"}, set=wanted)


def test_a_quota_that_is_infinite_is_a_text(cluster: TestCluster, url: str) -> None:
    """JSON has no infinity, and the page read no quota at all. Clients of Kafka may set it where a default is lower."""
    user = unique_topic("user")

    async def set_quota() -> None:
        async with ClusterClient(cluster.bootstrap_servers) as client:
            await AdminClient(client).alter_quotas({"user": user}, {"request_percentage": math.inf})

    def mine() -> list[Any]:
        return [one["quotas"] for one in got(url, "/api/quotas")["quotas"] if one["entity"] == {"user": user}]

    asyncio.run(set_quota())
    shows(mine, [{"request_percentage": "Infinity"}])
    at = ("--user", user, "-b", cluster.bootstrap_servers)
    assert json.loads(ok("quotas", "list", "--json", *at))["quotas"] == {"request_percentage": "Infinity"}
    assert ok("quotas", "list", *at) == f"user {user}  request_percentage=Infinity\n"
    changed(url, "/api/quotas", entity={"user": user}, set={"request_percentage": None}, execute=True)
    shows(mine, [])


def test_sizes_are_shown_by_broker_and_topic(cluster: TestCluster, url: str) -> None:
    topic = cluster.create_topic(partitions=2, replicas=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    producer.produce(topic, b"x" * 10_000, partition=0)
    assert producer.flush(30) == 0
    found = got(url, "/api/log-dirs")
    assert sorted(one["broker"] for one in found["log_dirs"]) == [1, 2, 3] and found["missing"] == []
    for one in found["log_dirs"]:
        (mine,) = [row for row in one["topics"] if row["topic"] == topic]
        assert mine["replicas"] == 2 and 10_000 < mine["size_bytes"] < one["size_bytes"] + 1
        assert 0 < one["usable_bytes"] < one["total_bytes"] and not one["has_failed"]


def test_a_partition_is_moved_with_progress_and_its_move_cancelled(cluster: TestCluster, url: str) -> None:
    topic = cluster.create_topic(partitions=1, replicas=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 5})
    for _ in range(1000):
        producer.produce(topic, b"x" * 1000, partition=0)
    assert producer.flush(30) == 0
    now = cluster.leader_of(topic)
    target = now % 3 + 1
    move = {"moves": [{"topic": topic, "partition": 0, "replicas": [target]}]}
    (planned,) = changed(url, "/api/reassignments", **move)["moves"]
    assert (planned["from"], planned["to"]) == ([now], [target]) and planned["copied_bytes"] > 1_000_000
    assert got(url, "/api/reassignments")["moves"] == []
    # So slow that it cannot end before it is cancelled.
    assert changed(url, "/api/reassignments", **move, throttle=1, execute=True)["executed"]
    (moving,) = got(url, "/api/reassignments")["moves"]
    assert (moving["adding"], moving["removing"]) == ([target], [now])
    assert 0 <= moving["copied_bytes"] < moving["total_bytes"]
    told = changed(url, "/api/reassignments/cancel", topic=topic, partition=0)["done"]
    assert told == f"cancelled the move of {topic}-0"
    assert got(url, "/api/reassignments")["moves"] == []
    told = changed(url, "/api/reassignments/unthrottle")["done"]
    assert told.startswith(f"removed the throttles of {topic}, ") and f"broker {target}" in told
    assert changed(url, "/api/reassignments/unthrottle")["done"] == "nothing was throttled"
    assert "no broker 9" in refusal(url, "/api/reassignments", moves=[{**move["moves"][0], "replicas": [9]}])
    assert "replicas is a list" in refusal(url, "/api/reassignments", moves=[{**move["moves"][0], "replicas": []}])
    assert refusal(url, "/api/reassignments", moves=[{**move["moves"][0], "partition": 7}])


def test_the_lag_of_all_groups_is_seen_over_time(cluster: TestCluster, url: str) -> None:
    topic = cluster.create_topic(partitions=1, replicas=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(5):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(30) == 0
    group = unique_topic("group")
    changed(url, f"/api/groups/{group}/reset", topic=topic, to="2", execute=True)
    events(url, lambda name, fields: fields.get("partitions", {}).get(f"{topic}\t0", [-1])[-1] == 5)
    (row,) = [one for one in got(url, "/api/groups")["groups"] if one["group"] == group]
    assert [lag for _, lag in row["lag"]] == [3]
    changed(url, f"/api/groups/{group}/reset", topic=topic, to="latest", execute=True)
    assert [lag for _, lag in got(url, f"/api/groups/{group}")["history"]] == [3, 0]


def test_a_console_that_is_read_only_refuses_all_of_it(cluster: TestCluster) -> None:
    with console(cluster, "--read-only") as url:
        for path in ("acls", "acls/remove", "users", "quotas", "reassignments", "transactions/x/terminate"):
            status, told = ask(url, f"/api/{path}", {"execute": True})
            assert (status, "--read-only" in told["error"]) == (403, True), path
        assert got(url, "/api/quotas")["quotas"] is not None
