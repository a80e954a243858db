"""The compose file, brought up, hurt and taken down as its first lines tell users to."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support.containers.compose import Compose, Sending, docker, get_json, read_all, wait_for

HERE = Path(__file__).parent
CONTROLLERS = ("controller-1", "controller-2", "controller-3")
BROKERS = ("broker-1", "broker-2", "broker-3")
INSIDE = "broker-1:19092,broker-2:19092,broker-3:19092"


def create_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(topic, 6, 3, config={"min.insync.replicas": "2"})], operation_timeout=30)
    created[topic].result(60)


def in_sync(bootstrap: str, topic: str) -> int:
    partitions = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, 30).topics[topic].partitions
    return sum(len(one.isrs) for one in partitions.values())


def alerts(project: Compose) -> set[tuple[str, str, str]]:
    answer = get_json(f"http://localhost:{project.environ['PROMETHEUS_PORT']}/api/v1/alerts")
    rows = answer["data"]["alerts"] if answer else []
    return {(row["labels"]["alertname"], row["labels"].get("instance", ""), row["state"]) for row in rows}


def targets_up(project: Compose) -> int:
    answer = get_json(f"http://localhost:{project.environ['PROMETHEUS_PORT']}/api/v1/query?query=up")
    return sum(row["value"][1] == "1" for row in answer["data"]["result"]) if answer else 0


def test_a_broker_s_container_is_killed_and_nothing_is_lost(
    compose: Callable[..., Compose], prometheus_image: str
) -> None:
    project = compose(PROMETHEUS_IMAGE=prometheus_image)
    project.run("up", "-d", *CONTROLLERS, *BROKERS, "prometheus")
    wait_for("healthy nodes", lambda: project.is_healthy(*CONTROLLERS, *BROKERS))
    create_topic(project.bootstrap, "flights")
    wait_for("six targets", lambda: targets_up(project) == 6)

    sending = Sending(project.bootstrap, "flights")
    sending.send_for(2)
    assert sending.acked
    killer = threading.Timer(1, project.run, ("kill", "-s", "KILL", "broker-2"))
    killer.start()
    sending.send_for(5)
    killer.join()
    project.run(
        "exec", "-T", "-e", f"RAFTWERK_BOOTSTRAP={INSIDE}", "broker-1", "raftwerk", "produce", "flights",
        stdin="from inside\n",
    )  # fmt: skip
    sending.finish()
    assert not sending.failed
    assert project.inspect("broker-2")["State"]["Status"] == "exited"

    down = ("RaftwerkNodeDown", "broker-2:9404", "firing")
    wait_for("the alert", lambda: down in alerts(project))
    counted = Counter(read_all(project.bootstrap, "flights"))
    assert [value for value in sending.acked if counted[value] != 1] == []
    assert counted[b"from inside"] == 1

    project.run("start", "broker-2")
    wait_for("every replica in sync", lambda: in_sync(project.bootstrap, "flights") == 18)
    wait_for("the alert's end", lambda: down not in alerts(project))


def test_the_console_shows_the_nodes_in_a_browser_of_the_host(compose: Callable[..., Compose]) -> None:
    project = compose()
    project.run("up", "-d", *CONTROLLERS, *BROKERS, "console")
    url = f"http://localhost:{project.environ['CONSOLE_PORT']}"
    about = wait_for("the console", lambda: get_json(f"{url}/api/about"))
    assert about["bootstrap"] == INSIDE
    assert (about["is_local"], about["is_read_only"], about["user"]) == (False, False, None)
    wait_for("healthy nodes", lambda: project.is_healthy(*BROKERS))
    create_topic(project.bootstrap, "flights")
    topic = wait_for("the topic", lambda: get_json(f"{url}/api/topics/flights"))
    assert len(topic["partitions"]) == 6


def test_all_is_taken_down_while_chaos_reigns(compose: Callable[..., Compose]) -> None:
    project = compose(CHAOS_EVERY="0.1", CHAOS_DOWN="1.5")
    project.run("--profile", "chaos", "up", "-d", *CONTROLLERS, *BROKERS, "chaos")
    wait_for("a second victim", lambda: project.run("logs", "chaos").count("killing") >= 2)
    assert "serves again" in project.run("logs", "chaos")
    project.run("--profile", "chaos", "down", "-v", timeout_s=60)
    label = f"label=com.docker.compose.project={project.name}"
    for kind in (("ps", "-a"), ("network", "ls"), ("volume", "ls")):
        assert docker(*kind, "-q", "--filter", label).stdout == ""


@pytest.mark.parametrize("compose", ["v2"], indirect=True)
def test_the_spark_job_counts_what_the_load_sends(compose: Callable[..., Compose], spark_image: str) -> None:
    project = compose(SPARK_IMAGE=spark_image)
    project.run("--profile", "spark", "up", "-d", *CONTROLLERS, *BROKERS, "load", "spark")
    row = wait_for(
        "a full second", lambda: re.search(r"\|([89]\d\d|1[0-2]\d\d) +\|6 ", project.run("logs", "spark")), 180
    )
    assert 800 <= int(row[1]) < 1300


def test_three_combined_nodes(compose: Callable[..., Compose]) -> None:
    project = compose()
    nodes = ("node-1", "node-2", "node-3")
    project.run("--profile", "combined", "up", "-d", *nodes)
    wait_for("healthy nodes", lambda: project.is_healthy(*nodes))
    check_round_trip(project)


def test_a_file_for_apache_kafka_runs_with_the_image_s_name_changed(
    compose: Callable[..., Compose], image: str
) -> None:
    project = compose(HERE / "kafka_three_nodes.yml", IMAGE=image)
    project.run("up", "-d")
    wait_for("the brokers", lambda: running(project) == 3)
    check_round_trip(project)


def running(project: Compose) -> int:
    """Brokers that have said what Testcontainers waits for."""
    return sum("Transitioning from RECOVERY to RUNNING" in project.run("logs", f"kafka-{one}") for one in (1, 2, 3))


def check_round_trip(project: Compose) -> None:
    create_topic(project.bootstrap, "t")
    sending = Sending(project.bootstrap, "t")
    sending.send_for(0.5)
    sending.finish()
    assert sending.acked and not sending.failed
    assert sorted(read_all(project.bootstrap, "t")) == sorted(sending.acked)
