"""No event holds the loop of a node: under faults, and when clients send requests of thousands of items."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.processor_speed import times_slower

from raftwerk.broker.to_controller.auto_topic_creation_manager import TOPICS_PER_REQUEST
from raftwerk.chaos.sim.cluster_config import ClusterConfig
from raftwerk.chaos.sim.invariants.loop_holds import LoopHoldChecker
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop
from raftwerk.chaos.sim.kernel.world import World
from raftwerk.chaos.sim.run import CLIENT_HOST, Run
from raftwerk.chaos.sim.scenarios import SCENARIOS
from raftwerk.chaos.sim.simulated_cluster import BROKER_PORT, SimulatedCluster
from raftwerk.cluster.client.admin_client import AdminClient, NewTopic
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import connect

LIMIT_S = 0.04
"""Twice what is wanted. A slower machine has as many times more."""
NOT_NODES = (CLIENT_HOST, "network")
"""The network looks at what it carries, for other invariants."""
ITEMS, TOPICS = 2_000, 60
NAMES = [f"many-{number}" for number in range(TOPICS)]
UNKNOWN = [f"unknown-{number}" for number in range(ITEMS)]
MADE = TOPICS_PER_REQUEST + 1
TIMEOUT = {"timeout_ms": 10_000}


@pytest.fixture(autouse=True)
def no_garbage_collection() -> Iterator[None]:
    """Collections of the whole test process are not a node's work."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("scenario", ["mixed", "churn", "groups", "moves"])
def test_faults_hold_no_loop(scenario: str) -> None:
    run = Run(SCENARIOS[scenario], 1)
    checker = LoopHoldChecker(run.world.scheduler, time.thread_time, LIMIT_S * times_slower(), NOT_NODES)
    outcome = run.execute()
    assert outcome.failure is None, outcome
    assert checker.longest_s > 0


def new_topic(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 3, "assignments": [], "configs": [], **fields}


def settings(name: str) -> dict[str, Any]:
    change = {"name": "retention.ms", "config_operation": 0, "value": "100000"}
    return {"resource_type": 2, "resource_name": name, "configs": [change]}


def of_partition_0(name: str) -> dict[str, Any]:
    return {"name": name, "topic": name, "partitions": [{"partition_index": 0, "replicas": [1] * 4, "offset": 0}]}


TWICE = {"partition_index": 0, "broker_ids": [1] * ITEMS}
REQUESTS: list[tuple[str, ApiKey, int, dict[str, Any]]] = [
    ("new topics", ApiKey.CREATE_TOPICS, 7, {"topics": list(map(new_topic, NAMES)), **TIMEOUT}),
    ("one new topic", ApiKey.CREATE_TOPICS, 7, {"topics": [new_topic("same")] * ITEMS, **TIMEOUT}),
    ("bad names", ApiKey.CREATE_TOPICS, 7, {"topics": [new_topic(f"?{one}") for one in UNKNOWN], **TIMEOUT}),
    ("one broker", ApiKey.CREATE_TOPICS, 7, {"topics": [new_topic("x", assignments=[TWICE])], **TIMEOUT}),
    ("settings", ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": list(map(settings, NAMES))}),
    ("settings of none", ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": list(map(settings, UNKNOWN))}),
    ("settings replaced", ApiKey.ALTER_CONFIGS, 2, {"resources": list(map(settings, UNKNOWN))}),
    ("partitions", ApiKey.CREATE_PARTITIONS, 3, {"topics": [{"name": n, "count": 2} for n in UNKNOWN], **TIMEOUT}),
    ("elections", ApiKey.ELECT_LEADERS, 2, {"topic_partitions": [{"topic": n, "partitions": [0]} for n in UNKNOWN]}),
    ("moves", ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": list(map(of_partition_0, UNKNOWN)), **TIMEOUT}),
    ("features", ApiKey.UPDATE_FEATURES, 1, {"feature_updates": [{"feature": name} for name in UNKNOWN]}),
    ("metadata", ApiKey.METADATA, 12, {"topics": [{"name": n} for n in UNKNOWN], "allow_auto_topic_creation": False}),
    ("topics to create", ApiKey.METADATA, 12, {"topics": [{"name": f"auto-{n}"} for n in range(MADE)]}),
    ("offsets", ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": list(map(of_partition_0, [*NAMES, *UNKNOWN]))}),
    ("records", ApiKey.FETCH, 12, {"topics": list(map(of_partition_0, [*NAMES, *UNKNOWN]))}),
    ("deletions", ApiKey.DELETE_RECORDS, 2, {"topics": list(map(of_partition_0, [*NAMES, *UNKNOWN])), **TIMEOUT}),
    ("directories", ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}),
    ("no topics", ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": name} for name in UNKNOWN], **TIMEOUT}),
    ("old topics", ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": name} for name in NAMES], **TIMEOUT}),
]


def test_no_request_of_a_client_holds_a_loop() -> None:
    with World(1) as world:
        cluster = SimulatedCluster(world, ClusterConfig(3, client_names=(CLIENT_HOST,)))
        world.network.add_host(CLIENT_HOST)
        client = ProcessLoop(world.scheduler, CLIENT_HOST, world.network)
        world.processes.append(client)
        LoopHoldChecker(world.scheduler, time.thread_time, LIMIT_S * times_slower(), NOT_NODES)
        cluster.start_all()
        assert world.scheduler.run_until(cluster.is_healthy, 20)

        async def create_topic() -> None:
            async with ClusterClient(cluster.bootstrap, timeout_s=3.0) as admin:
                await AdminClient(admin).create_topic(NewTopic("t", 3, 3))

        async def send(key: ApiKey, version: int, fields: dict[str, Any]) -> None:
            connection = await connect("n1", BROKER_PORT)
            await connection.request(key, version, fields, timeout_s=30)
            connection.close()

        client.run_until_complete(create_topic(), 20)
        for what, key, version, fields in REQUESTS:
            client.run_until_complete(send(key, version, fields), 60)
            world.scheduler.run_for(1)
            assert not world.errors, f"{what}: {world.errors[0]}"
            gc.collect()
