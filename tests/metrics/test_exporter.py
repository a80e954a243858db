"""The metrics that nodes of a real cluster export."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from raftwerk.broker.to_controller.broker_lifecycle import BrokerState
from raftwerk.cluster.client.admin_client import AdminClient, NewTopic
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.consumer import EARLIEST, Consumer
from raftwerk.cluster.client.producer import Producer
from raftwerk.cluster.client.reassignment import Move, reassign, wait_for_moves
from raftwerk.cluster.local.layout import ClusterShape, plan_cluster
from raftwerk.cluster.local.supervisor import Supervisor
from raftwerk.cluster.metrics.catalog import CATALOG, COUNTER, SUMMARY, Spec, reference_page
from raftwerk.cluster.metrics.exporter import family, split
from raftwerk.cluster.metrics.latency import Latency

ROOT = Path(__file__).resolve().parents[2]
Scrape = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(port: int) -> Scrape:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for one in text_string_to_metric_families(text)
        for sample in one.samples
    }


def total(scrapes: list[Scrape], name: str, **labels: str) -> float:
    return sum(
        value
        for one in scrapes
        for (found, has), value in one.items()
        if found == name and labels.items() <= dict(has).items()
    )


def test_the_reference_page_is_the_catalog() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == reference_page()


def test_names_are_unique_and_counters_end_in_total_or_count() -> None:
    names = [spec.name for spec in CATALOG]
    assert len(names) == len(set(names))
    for spec in CATALOG:
        if spec.kind == COUNTER:
            assert spec.name.endswith(("_total", "_count"))


def one_sample(spec: Spec) -> Metric:
    """The family of a metric with one sample."""
    latency = Latency()
    latency.observe(0.002)
    return family(spec, [(("x",) * len(spec.labels), (latency, 1.0) if spec.kind == SUMMARY else 3)], 1.0)


@pytest.mark.parametrize("spec", CATALOG, ids=lambda spec: spec.name)
def test_lines_of_help_and_type_name_the_samples_that_follow(spec: Spec) -> None:
    text = b"".join(split(one_sample(spec))).decode()
    about, kind, *samples = text.splitlines()
    assert about.startswith(f"# HELP {kind.split()[2]} ")
    _, _, name, told = kind.split()
    ends = ("_count", "_sum", "") if told == "summary" else ("",)
    assert {line.partition("{")[0].partition(" ")[0] for line in samples} <= {f"{name}{end}" for end in ends}
    assert [one.type for one in text_string_to_metric_families(text)] == [told]
    assert all(line.startswith(spec.name) for line in samples)


def test_all_families_can_be_read_as_openmetrics() -> None:
    class All(Collector):
        def collect(self) -> Iterable[Metric]:
            return map(one_sample, CATALOG)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(All())
    text = generate_latest(registry).decode()  # type: ignore[no-untyped-call]
    found = list(openmetrics_families(text))  # type: ignore[no-untyped-call]
    assert len(found) == len(CATALOG)
    assert {sample.name.removesuffix("_count").removesuffix("_sum") for one in found for sample in one.samples} == {
        spec.name.removesuffix("_count") for spec in CATALOG
    }


def test_a_summary_has_quantiles_count_and_sum() -> None:
    latency = Latency()
    latency.observe(0.002)
    spec = next(one for one in CATALOG if one.kind == SUMMARY and one.labels == ("request",))
    samples = family(spec, [(("Produce",), (latency, 1000.0))], 1.0).samples
    assert samples[0].labels == {"request": "Produce", "quantile": "0.5"}
    assert 2.0 <= samples[0].value <= 2.2
    assert [one.name.removeprefix(spec.name) for one in samples[-2:]] == ["_count", "_sum"]
    assert samples[-1].value == pytest.approx(2.0)


async def exchange(bootstrap: str) -> None:
    async with ClusterClient(bootstrap) as client:
        throttled = {f"{side}.replication.throttled.replicas": "*" for side in ("leader", "follower")}
        await AdminClient(client).create_topic(NewTopic("flights", 2, 3, throttled))
        producer = Producer(client, "flights")
        await producer.start()
        await producer.send((None, str(number).encode()) for number in range(50))
        await producer.send((None, str(number).encode()) for number in range(50))
        consumer = Consumer(client, "flights")
        await consumer.start((), at=EARLIEST)
        count = 0
        async for _ in consumer.records():
            count += 1
            if count == 100:
                break


@pytest.mark.process
def test_a_cluster_under_metrics(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(3, port=0, metrics_port=0))
    ports = [int(node.properties["metrics.port"]) for node in plan.nodes]
    with Supervisor(plan) as supervisor:
        supervisor.start(60)
        asyncio.run(exchange(plan.bootstrap))
        scrapes = [scrape(port) for port in ports]
        assert total(scrapes, "kafka_server_brokertopicmetrics_messagesin_total", topic="flights") == 100
        assert total(scrapes, "kafka_server_brokertopicmetrics_bytesout_total", topic="flights") > 0
        arrived = total(scrapes, "kafka_server_brokertopicmetrics_bytesin_total", topic="flights")
        assert (
            total(scrapes, "kafka_server_brokertopicmetrics_replicationbytesout_total", topic="flights") == 2 * arrived
        )
        got = total(scrapes, "kafka_server_brokertopicmetrics_replicationbytesin_total", topic="flights")
        assert got == 2 * arrived
        assert total(scrapes, "kafka_server_brokertopicmetrics_reassignmentbytesin_total") == 0
        for side in ("leader", "follower"):
            assert total(scrapes, f"kafka_server_{side}replication_byte_rate") > 0, "measured, if without a limit"
        assert total(scrapes, "kafka_server_replicamanager_reassigningpartitions") == 0
        assert total(scrapes, "kafka_topic_partition_current_offset", topic="flights") == 100
        assert total(scrapes, "kafka_topic_partition_in_sync_replica", topic="flights") == 6
        assert total(scrapes, "kafka_controller_kafkacontroller_activecontrollercount") == 1
        assert total(scrapes, "kafka_brokers") == 3
        assert total(scrapes, "kafka_server_replicamanager_partitioncount") == 6
        assert total(scrapes, "kafka_server_kafkaserver_brokerstate") == 3 * BrokerState.RUNNING.value
        assert total(scrapes, "raftwerk_ready") == 3
        assert all(total([one], "process_resident_memory_bytes") < 70e6 for one in scrapes)
        check_exposition(ports[0])
        supervisor.kill(3)
        with pytest.raises(urllib.error.URLError):
            scrape(ports[2])
        deadline_scrapes = wait_for_under_replicated(ports[:2])
        assert total(deadline_scrapes, "kafka_controller_kafkacontroller_activecontrollercount") == 1
        asyncio.run(move_one(",".join(f"127.0.0.1:{node.port}" for node in plan.nodes[:2])))
        scrapes = [scrape(port) for port in ports[:2]]
        moved = total(scrapes, "kafka_server_brokertopicmetrics_bytesin_total", topic="moved")
        assert moved > 5_000
        for way in ("in", "out"):
            assert total(scrapes, f"kafka_server_brokertopicmetrics_reassignmentbytes{way}_total") == moved


@pytest.mark.process
def test_time_series_are_bounded(tmp_path: Path) -> None:
    limit = {"metrics.partition.limit": "3", "offsets.topic.num.partitions": "1"}
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0, metrics_port=0, overrides=limit))
    with Supervisor(plan) as supervisor:
        supervisor.start(60)
        asyncio.run(send_to_topics(plan.bootstrap, 6))
        found = scrape(int(plan.nodes[0].properties["metrics.port"]))
    by_topic = [dict(labels)["topic"] for name, labels in found if name.endswith("messagesin_total")]
    by_partition = [labels for name, labels in found if name == "kafka_log_log_size"]
    assert (len(by_topic), len(by_partition)) == (3, 3)
    assert total([found], "raftwerk_metrics_partitions_left_out") == 9


async def send_to_topics(bootstrap: str, count: int) -> None:
    async with ClusterClient(bootstrap) as client:
        for number in range(count):
            await AdminClient(client).create_topic(NewTopic(f"t{number}", 2, 1))
            producer = Producer(client, f"t{number}")
            await producer.start()
            await producer.send([(None, b"x")])


async def move_one(bootstrap: str) -> None:
    """Move a partition with one replica from one of the brokers 1 and 2 to the other."""
    async with ClusterClient(bootstrap) as client:
        await AdminClient(client).create_topic(NewTopic("moved", 1, 1))
        producer = Producer(client, "moved")
        await producer.start()
        await producer.send((None, b"x" * 100) for _ in range(50))
        leader = (await client.metadata(["moved"])).topics[0].partitions[0].leader
        there = [Move("moved", 0, (3 - leader,))]
        await reassign(client, there)
        await wait_for_moves(client, there, 20)


def wait_for_under_replicated(ports: list[int]) -> list[Scrape]:
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        scrapes = [scrape(port) for port in ports]
        if total(scrapes, "kafka_server_replicamanager_underreplicatedpartitions") == 2:
            return scrapes
    pytest.fail("no partition was seen under-replicated")


def check_exposition(port: int) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        return
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        done = subprocess.run([promtool, "check", "metrics"], check=False, input=answer.read(), capture_output=True)
    assert b"error while linting" not in done.stderr, done.stderr
