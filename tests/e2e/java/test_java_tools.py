"""Each verb of Apache Kafka's command line tools against three nodes; one JVM runs them all."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.e2e import helpers
from support.e2e.consumers import CLASSIC, CONSUMER, COUNT, PARTITIONS, confluent, read, settle
from support.e2e.in_process import ok
from support.e2e.java_tools import JavaTools

from raftwerk.broker.coordinators.partition_for import partition_for
from raftwerk.broker.groups.group_config import OFFSETS_TOPIC

pytestmark = pytest.mark.java
GROUPS = "consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"

Tool = Callable[..., str]


@pytest.fixture
def tool(java_tools: JavaTools, bootstrap: str) -> Tool:
    def run(name: str, *arguments: str, fails: bool = False) -> str:
        return java_tools.run(name, "--bootstrap-server", bootstrap, *arguments, fails=fails)

    return run


def offsets(tool: Tool, group: str) -> dict[int, int]:
    rows = [line.split() for line in tool(GROUPS, "--describe", "--group", group, "--offsets").splitlines()]
    return {int(row[2]): int(row[3]) for row in rows if len(row) > 4 and row[0] == group and row[3].isdigit()}


@pytest.mark.parametrize("config", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_consumer_groups(tool: Tool, bootstrap: str, filled: str, config: dict[str, str], tmp_path: Path) -> None:
    group = f"g-{filled}"
    consumer = confluent(bootstrap, group, **config)
    consumer.subscribe([filled])
    assert read([consumer], COUNT) == list(range(COUNT))
    consumer.commit(asynchronous=False)
    settle([consumer])
    kind = config.get("group.protocol", "classic")

    assert group in tool(GROUPS, "--list")
    assert re.search(rf"{group}\s+Stable", tool(GROUPS, "--list", "--state", "Stable"))
    assert group in tool(GROUPS, "--list", "--type", kind)
    assert group not in tool(GROUPS, "--list", "--state", "Empty")
    assert group in tool("GroupsCommand", "--list", "--group-type", kind)
    told = tool(GROUPS, "--describe", "--group", group, "--state")
    assert re.search(rf"{group}\s+\S+\s+\(\d\)\s+\S+\s+Stable\s+1", told), told
    told = tool(GROUPS, "--describe", "--group", group, "--members", "--verbose")
    assert re.search(rf"{group}\s+\S+\s+\S+\s+rdkafka\s+6", told), told
    assert filled in told
    assert offsets(tool, group) == dict.fromkeys(range(PARTITIONS), 50)
    if kind == "classic":
        told = tool(GROUPS, "--delete", "--group", group, fails=False)
        assert "GroupNotEmptyException" in told
    told = tool(GROUPS, "--delete-offsets", "--group", group, "--topic", filled, fails=False)
    assert "GroupSubscribedToTopicException" in told or "ubscribed" in told
    consumer.close()

    moves = {
        ("--to-earliest",): 0,
        ("--to-latest",): 50,
        ("--shift-by", "-20"): 30,
        ("--to-offset", "7"): 7,
        ("--by-duration", "PT1H"): 0,
        ("--to-datetime", "2020-01-01T00:00:00.000"): 0,
        ("--to-current",): 0,
    }
    for how, expected in moves.items():
        tool(GROUPS, "--reset-offsets", "--group", group, "--topic", filled, *how, "--execute")
        assert offsets(tool, group) == dict.fromkeys(range(PARTITIONS), expected), how
    dry = tool(GROUPS, "--reset-offsets", "--group", group, "--all-topics", "--to-offset", "9", "--dry-run", "--export")
    assert f"{filled},0,9" in dry
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{filled},0,11\n{filled},1,12\n")
    tool(GROUPS, "--reset-offsets", "--group", group, "--from-file", str(plan), "--execute")
    assert [offsets(tool, group)[partition] for partition in range(3)] == [11, 12, 0]
    tool(GROUPS, "--delete-offsets", "--group", group, "--topic", f"{filled}:0")
    assert sorted(offsets(tool, group)) == list(range(1, PARTITIONS))
    assert "successful" in tool(GROUPS, "--delete", "--group", group)
    assert group not in tool(GROUPS, "--list")


def test_readers_of_the_offsets_topic(tool: Tool, bootstrap: str, filled: str) -> None:
    """As kafka_exporter and the like read it, with Kafka's own formatters."""
    group = f"g-{filled}"
    consumer = confluent(bootstrap, group)
    consumer.subscribe([filled])
    assert read([consumer], COUNT) == list(range(COUNT))
    consumer.commit(asynchronous=False)
    consumer.close()
    place = ("--topic", OFFSETS_TOPIC, "--partition", str(partition_for(group, 50)), "--offset", "earliest")
    reads = ("consumer.ConsoleConsumer", "--timeout-ms", "1500", "--command-property", "enable.auto.commit=false")
    formatter = "org.apache.kafka.tools.consumer."
    rows = objects(tool(*reads, *place, "--formatter", formatter + "OffsetsMessageFormatter"))
    commits = {row["key"]["data"]["partition"]: row["value"] for row in rows if row["key"]["data"]["group"] == group}
    assert {part: value["data"]["offset"] for part, value in commits.items()} == dict.fromkeys(range(PARTITIONS), 50)
    assert {value["version"] for value in commits.values()} == {4}
    rows = objects(tool(*reads, *place, "--formatter", formatter + "GroupMetadataMessageFormatter"))
    states = [row["value"]["data"] for row in rows if row["key"]["data"]["group"] == group]
    assert [(one["generation"], len(one["members"])) for one in states] == [(1, 1), (2, 0)]
    everything = ("--topic", OFFSETS_TOPIC, "--from-beginning", "--group", f"reader-{group}")
    rows = objects(tool(*reads, *everything, "--formatter", formatter + "OffsetsMessageFormatter"))
    assert group in {row["key"]["data"]["group"] for row in rows}


def objects(text: str) -> list[Any]:
    """The JSON objects that stand one behind the other in what a tool has printed."""
    decoder, found, at = json.JSONDecoder(), [], text.find("{")
    while at >= 0:
        row, end = decoder.raw_decode(text, at)
        found.append(row)
        at = text.find("{", end)
    return found


def test_offsets_log_dirs_and_versions(tool: Tool, filled: str, tmp_path: Path) -> None:
    told = tool("GetOffsetShell", "--topic", filled)
    assert sorted(told.split()) == [f"{filled}:{partition}:50" for partition in range(PARTITIONS)]
    told = tool("GetOffsetShell", "--topic-partitions", f"{filled}:0-2", "--time", "earliest")
    assert sorted(told.split()) == [f"{filled}:0:0", f"{filled}:1:0"]
    assert f"{filled}:0:" in tool("GetOffsetShell", "--topic", filled, "--time", "max-timestamp")
    asked = tmp_path / "offsets.json"
    asked.write_text(json.dumps({"version": 1, "partitions": [{"topic": filled, "partition": 0, "offset": 30}]}))
    assert f"partition: {filled}-0\tlow_watermark: 30" in tool("DeleteRecordsCommand", "--offset-json-file", str(asked))
    assert tool("GetOffsetShell", "--topic-partitions", f"{filled}:0", "--time", "earliest").split() == [
        f"{filled}:0:30"
    ]
    told = tool("LogDirsCommand", "--describe", "--topic-list", filled)
    found = json.loads(next(line for line in told.splitlines() if line.startswith("{")))
    assert len(found["brokers"]) == 3
    held = [row["partition"] for broker in found["brokers"] for one in broker["logDirs"] for row in one["partitions"]]
    assert sorted(held) == sorted(f"{filled}-{partition}" for partition in range(PARTITIONS) for _ in range(3))
    told = tool("BrokerApiVersionsCommand")
    assert told.count("ConsumerGroupHeartbeat(68): 0 to 1") == 3
    assert "ERROR" not in told


def eventually(condition: Callable[[], bool]) -> None:
    """Every broker hears of what the controller has decided, if not at once."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline


def test_configs(tool: Tool, filled: str) -> None:
    def alter(kind: str, name: str, *how: str, fails: bool = False) -> str:
        return tool(CONFIGS, "--alter", "--entity-type", kind, "--entity-name", name, *how, fails=fails)

    def describe(kind: str, name: str, *how: str) -> str:
        return tool(CONFIGS, "--describe", "--entity-type", kind, "--entity-name", name, *how)

    def shows(text: str, kind: str, name: str, *how: str) -> None:
        eventually(lambda: text in describe(kind, name, *how))

    alter("groups", filled, "--add-config", "consumer.session.timeout.ms=50000")
    shows("consumer.session.timeout.ms=50000", "groups", filled)
    assert "must be greater" in alter("groups", filled, "--add-config", "consumer.session.timeout.ms=5", fails=True)
    alter("groups", filled, "--delete-config", "consumer.session.timeout.ms")
    eventually(lambda: "50000" not in describe("groups", filled))
    alter("topics", filled, "--add-config", "retention.ms=60000,cleanup.policy=[compact,delete]")
    shows("retention.ms=60000", "topics", filled)
    alter("topics", filled, "--delete-config", "retention.ms,cleanup.policy")
    alter("brokers", "1", "--add-config", "log.retention.ms=7000000")
    shows("log.retention.ms=7000000", "brokers", "1")
    alter("brokers", "1", "--delete-config", "log.retention.ms")
    tool(CONFIGS, "--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "log.retention.ms=8000000")
    everywhere = ("--describe", "--entity-type", "brokers", "--entity-default")
    eventually(lambda: "8000000" in tool(CONFIGS, *everywhere))
    shows("log.retention.ms=8000000", "topics", filled, "--all")
    tool(CONFIGS, "--alter", "--entity-type", "brokers", "--entity-default", "--delete-config", "log.retention.ms")
    alter("broker-loggers", "1", "--add-config", "raftwerk.groups=DEBUG")
    shows("raftwerk.groups=DEBUG", "broker-loggers", "1")
    alter("broker-loggers", "1", "--delete-config", "raftwerk.groups")
    alter(
        "client-metrics", "mine", "--add-config", "interval.ms=5000,metrics=[org.apache.kafka.],match=[client_id=a.*]"
    )
    shows("interval.ms=5000", "client-metrics", "mine")
    eventually(lambda: "mine" in tool("ClientMetricsCommand", "--list"))
    tool("ClientMetricsCommand", "--delete", "--name", "mine")
    eventually(lambda: "mine" not in tool("ClientMetricsCommand", "--list"))


def test_topics(tool: Tool, topic: str) -> None:
    def topics(*arguments: str, fails: bool = False) -> str:
        return tool("TopicCommand", *arguments, fails=fails)

    topics("--create", "--topic", topic, "--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=9")
    assert "already exists" in topics("--create", "--topic", topic, fails=True)
    assert "already exists" not in topics("--create", "--topic", topic, "--if-not-exists")
    assert topic in topics("--list", "--exclude-internal").split()
    topics("--alter", "--topic", topic, "--partitions", "3")
    told = topics("--describe", "--topic", topic)
    assert "PartitionCount: 3" in told
    assert "retention.ms=9" in told
    for which in ("--under-replicated-partitions", "--unavailable-partitions", "--at-min-isr-partitions"):
        assert topic not in topics("--describe", which)
    assert topic in topics("--describe", "--topics-with-overrides")
    assert topic not in topics("--describe", "--under-min-isr-partitions")
    topic_id = re.search(r"TopicId: (\S+)", told)
    assert topic_id
    assert f"Topic: {topic}" in topics("--describe", "--topic-id", topic_id[1])
    assert topics("--describe", "--topic", topic, "--partition-size-limit-per-response", "1").count("Leader: ") == 3
    assert "would not be an increase" in topics("--alter", "--topic", topic, "--partitions", "1", fails=True)
    for how in (("--alter", "--partitions", "9"), ("--describe",), ("--delete",)):
        assert "does not exist" not in topics(*how, "--topic", f"no-{topic}", "--if-exists")
        assert "does not exist" in topics(*how, "--topic", f"no-{topic}", fails=True)
    topics("--delete", "--topic", topic)
    eventually(lambda: topic not in topics("--list").split())
    assert "does not exist" in topics("--delete", "--topic", topic, fails=True)
    topics("--create", "--topic", topic, "--replica-assignment", "2:1,3:2")
    assert "Replicas: 2,1" in topics("--describe", "--topic", topic)


def test_reassignment(tool: Tool, topic: str, bootstrap: str, tmp_path: Path) -> None:
    name = "reassign.ReassignPartitionsCommand"
    helpers.create_topic(bootstrap, topic, 2, 2)
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    told = tool(name, "--generate", "--topics-to-move-json-file", str(wanted), "--broker-list", "1,2,3")
    assert "Proposed partition reassignment configuration" in told
    plan = tmp_path / "plan.json"
    moves = [{"topic": topic, "partition": 0, "replicas": [3, 1]}, {"topic": topic, "partition": 1, "replicas": [1, 2]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    assert "Successfully started" in tool(name, "--execute", "--reassignment-json-file", str(plan))
    for _ in range(50):
        told = tool(name, "--verify", "--reassignment-json-file", str(plan))
        if told.count("is completed") == 2:
            break
    assert told.count("is completed") == 2, told
    assert "No partition reassignments found" in tool(name, "--list")
    assert "None of the specified partition reassignments are active" in tool(
        name, "--cancel", "--reassignment-json-file", str(plan)
    )
    assert "Replicas: 3,1" in tool("TopicCommand", "--describe", "--topic", topic)
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1, 2, 3]}]}))
    refused = tool(
        name, "--execute", "--disallow-replication-factor-change", *("--reassignment-json-file", str(plan)), fails=True
    )
    assert "The replication factor is changed from 2 to 3" in refused


def test_reassignment_with_a_throttle(tool: Tool, topic: str, bootstrap: str, tmp_path: Path) -> None:
    """Begun, changed, looked at, called off; begun again and seen through."""
    name = "reassign.ReassignPartitionsCommand"
    helpers.create_on(bootstrap, topic, [[1, 2], [2, 1]], "1")
    ok("perf", "produce", topic, "-b", bootstrap, "--records", "600", "--record-size", "10000")
    plan = tmp_path / "plan.json"
    moves = [{"topic": topic, "partition": 0, "replicas": [2, 3]}, {"topic": topic, "partition": 1, "replicas": [3, 1]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    this = ("--reassignment-json-file", str(plan))
    both = f"{topic}-0,{topic}-1"

    def settings() -> str:
        topic_configs = tool(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", topic)
        return topic_configs + tool(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "3")

    told = tool(name, "--execute", *this, "--throttle", "200000")
    assert "The inter-broker throttle limit was set to 200000 B/s" in told
    assert f"Successfully started partition reassignments for {both}" in told
    assert f"{topic}-0: replicas: 2,3,1. adding: 3. removing: 1." in tool(name, "--list")
    assert "there is an existing partition assignment" in tool(name, "--execute", *this, fails=True)
    assert "limit was set to 300000 B/s" in tool(name, "--execute", "--additional", *this, "--throttle", "300000")
    eventually(lambda: "follower.replication.throttled.rate=300000" in settings())
    told = settings()
    assert "leader.replication.throttled.replicas=0:1,0:2,1:1,1:2" in told
    assert "follower.replication.throttled.replicas=0:3,1:3" in told
    assert tool(name, "--verify", *this, "--preserve-throttles").count("is still in progress") == 2
    told = tool(name, "--cancel", *this, "--preserve-throttles")
    assert f"Successfully cancelled partition reassignments for: {both}" in told
    assert "No partition reassignments found" in tool(name, "--list")
    assert "throttled" in settings()
    told = tool(name, "--verify", *this)
    assert "Clearing broker-level throttles on brokers 1,2,3" in told
    assert f"Clearing topic-level throttles on topic {topic}" in told
    eventually(lambda: "throttled" not in settings())
    tool(name, "--execute", *this, "--throttle", "20000000")
    eventually(lambda: tool(name, "--verify", *this).count("is completed") == 2)
    eventually(lambda: "throttled" not in settings())


def test_elections(tool: Tool, topic: str, bootstrap: str, tmp_path: Path) -> None:
    helpers.create_topic(bootstrap, topic, 1)
    one = ("--topic", topic, "--partition", "0")
    told = tool("LeaderElectionCommand", "--election-type", "preferred", *one)
    assert "Valid replica already elected" in told
    told = tool("LeaderElectionCommand", "--election-type", "unclean", *one)
    assert "Valid replica already elected" in told
    named = tmp_path / "partitions.json"
    named.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}]}))
    tool("LeaderElectionCommand", "--election-type", "preferred", "--path-to-json-file", str(named))
    tool("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")


def test_features_cluster_and_quorum(tool: Tool, java_tools: JavaTools, bootstrap: str) -> None:
    features = "FeatureCommand"
    at = ("--bootstrap-server", bootstrap)
    assert "metadata.version" in java_tools.run(features, *at, "describe")
    java_tools.run(features, *at, "upgrade", "--metadata", "3.0", "--dry-run", fails=True)
    assert "metadata.version=29" in java_tools.run(features, *at, "version-mapping", "--release-version", "4.2-IV1")
    assert "no dependencies" in java_tools.run(features, *at, "feature-dependencies", "--feature", "kraft.version=1")
    elr = "eligible.leader.replicas.version"
    assert f"{elr} can be disabled" in java_tools.run(features, *at, "disable", "--feature", elr, "--dry-run")
    assert f"{elr} was downgraded to 0" in java_tools.run(features, *at, "downgrade", "--feature", f"{elr}=0")
    assert f"{elr} was upgraded to 1" in java_tools.run(features, *at, "upgrade", "--feature", f"{elr}=1")
    told = java_tools.run(features, *at, "upgrade", "--feature", "nobodys.version=1", fails=True)
    assert "does not support the feature" in told
    told = java_tools.run(features, *at, "describe")
    shown = {line.split()[1]: line.split()[3:] for line in told.splitlines() if line.startswith("Feature:")}
    assert shown["group.version"][:5] == ["1", "SupportedMaxVersion:", "1", "FinalizedVersionLevel:", "1"]
    java_tools.run(features, *at, "upgrade", "--feature", "group.version=1")
    told = java_tools.run(features, *at, "downgrade", "--feature", "group.version=0", fails=True)
    assert "Local controller supports 1 to 1" in told
    record = "raftwerk.record.version"
    assert f"{record} was downgraded to 0" in java_tools.run(features, *at, "downgrade", "--feature", f"{record}=0")
    assert f"{record} was upgraded to 2" in java_tools.run(features, *at, "upgrade", "--feature", f"{record}=2")
    told = java_tools.run(features, *at, "upgrade", "--release-version", "4.2-IV1", fails=True)
    assert re.search(r"for feature (share|streams)\.version. Local controller does not support", told), told
    assert "7 out of 7 operation(s) failed" in told
    assert "Cluster ID:" in java_tools.run("ClusterTool", "cluster-id", *at)
    assert java_tools.run("ClusterTool", "list-endpoints", *at).count("127.0.0.1") == 3
    java_tools.run("ClusterTool", "unregister", *at, "--id", "77", fails=True)
    quorum = "MetadataQuorumCommand"
    assert "LeaderId:" in java_tools.run(quorum, *at, "describe", "--status")
    assert java_tools.run(quorum, *at, "describe", "--replication").count("Follower") == 2
    assert "ms ago" in java_tools.run(quorum, *at, "describe", "--replication", "--human-readable")
    one = ("--controller-id", "9", "--controller-directory-id", "MkU3OEVBNTcwNTJENDM2Qg")
    assert "DRY RUN" in java_tools.run(quorum, *at, "remove-controller", *one, "--dry-run")


def test_passwords_of_users(java_tools: JavaTools, bootstrap: str) -> None:
    user = ("--bootstrap-server", bootstrap, "--entity-type", "users", "--entity-name", "tool")
    java_tools.run(CONFIGS, *user, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=x]")
    described = java_tools.run(CONFIGS, *user, "--describe")
    assert "SCRAM credential configs for user-principal 'tool' are SCRAM-SHA-256=iterations=8192" in described
    java_tools.run(CONFIGS, *user, "--alter", "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM" not in java_tools.run(CONFIGS, *user, "--describe")


def test_client_quotas(java_tools: JavaTools, bootstrap: str) -> None:
    """Of users, client ids, both, defaults and addresses: set, described, and removed."""
    at = ("--bootstrap-server", bootstrap)
    entities = {
        "user-principal 'u'": ("users", "u"),
        "client-id 'c'": ("clients", "c"),
        "user-principal 'u', client-id 'c'": ("users", "u", "clients", "c"),
        "user-principal 'u', the default client-id": ("users", "u", "clients", None),
        "the default client-id": ("clients", None),
        "ip '127.0.0.9'": ("ips", "127.0.0.9"),
    }
    for told, (*entity,) in entities.items():
        named: list[str] = []
        for kind, name in zip(entity[::2], entity[1::2], strict=True):
            named += ["--entity-type", str(kind), *(["--entity-default"] if name is None else ["--entity-name", name])]
        key = "connection_creation_rate" if entity[0] == "ips" else "producer_byte_rate"
        java_tools.run(CONFIGS, *at, *named, "--alter", "--add-config", f"{key}=1000")
        described = java_tools.run(CONFIGS, *at, *named, "--describe")
        assert f"Quota configs for {told} are {key}=1000.0" in described
        java_tools.run(CONFIGS, *at, *named, "--alter", "--delete-config", key)
        assert key not in java_tools.run(CONFIGS, *at, *named, "--describe")
    user = ("--entity-type", "users", "--entity-name", "u", "--alter", "--add-config")
    told = java_tools.run(CONFIGS, *at, *user, "producer_byte_rate=0", fails=True)
    assert "Quota producer_byte_rate must be greater than 0" in told


def test_what_is_not_served_is_said(
    tool: Tool, java_tools: JavaTools, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """At once, by name, and not by waiting until the time is up."""
    helpers.create_topic(bootstrap, topic)
    began = time.monotonic()
    empty = tmp_path / "empty.properties"
    empty.write_text("")
    at = ("--bootstrap-server", bootstrap)
    for api, asked in {
        "STREAMS_GROUP_DESCRIBE": ("streams.StreamsGroupCommand", *at, "--describe", "--group", "x"),
    }.items():
        told = java_tools.run(*asked, fails=True)
        assert f"UnsupportedVersionException: The node does not support {api}" in told
    tokens = ("DelegationTokenCommand", *at, "--describe", "--command-config", str(empty))
    assert "Delegation Token requests are not allowed" in java_tools.run(*tokens, fails=True)
    told = java_tools.run("AclCommand", *at, "--list", fails=True)
    assert "SecurityDisabledException: No Authorizer is configured on the broker" in told
    told = tool("consumer.group.ShareGroupCommand", "--describe", "--group", "x")
    assert "UnsupportedVersionException: The node does not support SHARE_GROUP_DESCRIBE" in told
    assert time.monotonic() - began < 20
