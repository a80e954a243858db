"""Every refusal names the key, its value, the reason and the way out."""

from __future__ import annotations

import sys
from types import ModuleType
from uuid import UUID

import pytest

from raftwerk.cluster.settings.configuration_page import describe_broker_configs
from raftwerk.cluster.settings.node_config import ConfigError, Listener, NodeConfig, Voter, load_config
from raftwerk.cluster.settings.setting_names import misspelt_names
from raftwerk.cluster.settings.settings_per_package import (
    broker_config,
    controller_settings,
    log_manager_config,
    raft_config,
    request_memories,
)
from raftwerk.controller.configs.broker_configs import BROKER_CONFIGS
from raftwerk.raft.messages import requests
from raftwerk.wire.types import SnapshotId

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data/a",
}
BROKER = COMBINED | {"process.roles": "broker", "node.id": "4", "listeners": "PLAINTEXT://localhost:9092"}
CONTROLLER = COMBINED | {"process.roles": "controller", "listeners": "CONTROLLER://localhost:9093"}


def problems(properties: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        NodeConfig.from_properties(properties)
    return [str(problem) for problem in caught.value.problems]


def test_a_combined_node() -> None:
    config = NodeConfig.from_properties(COMBINED)
    assert (config.node_id, config.is_broker, config.is_controller) == (1, True, True)
    assert config.voters == (Voter(1, "localhost", 9093),)
    assert config.broker_listeners == config.advertised == (Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    assert [str(one) for one in config.controller_listeners] == ["CONTROLLER://localhost:9093"]
    assert config.log_dirs == ("/data/a",)
    assert config.metadata_log_dir == "/data/a"
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.warnings == ()


DYNAMIC = {name: value for name, value in COMBINED.items() if name != "controller.quorum.voters"} | {
    "controller.quorum.bootstrap.servers": "localhost:9093,[::1]:9094"
}


def test_dynamic_voters() -> None:
    config = NodeConfig.from_properties(DYNAMIC)
    assert not config.has_static_voters
    assert config.bootstrap == (("localhost", 9093), ("::1", 9094))
    assert [str(one) for one in config.advertised_controller] == ["CONTROLLER://localhost:9093"]
    assert config.warnings == ()


def test_where_other_controllers_reach_this_one() -> None:
    everywhere = DYNAMIC | {"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://0.0.0.0:9093"}
    config = NodeConfig.from_properties(everywhere).with_default_host("myself")
    assert [str(one) for one in config.advertised_controller] == ["CONTROLLER://myself:9093"]
    told = everywhere | {"advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://outside:19093"}
    config = NodeConfig.from_properties(told)
    assert [str(one) for one in config.advertised_controller] == ["CONTROLLER://outside:19093"]
    assert [one.name for one in config.advertised] == ["PLAINTEXT"]


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (DYNAMIC | {"controller.quorum.bootstrap.servers": "localhost"}, "'localhost' is no host:port"),
        (COMBINED | {"controller.quorum.auto.join.enable": "true"}, "nobody can join them"),
        (
            DYNAMIC
            | {
                "process.roles": "broker",
                "listeners": "PLAINTEXT://localhost:9092",
                "controller.quorum.auto.join.enable": "true",
            },
            "this node is no controller",
        ),
    ],
)
def test_dynamic_voters_are_checked(properties: dict[str, str], reason: str) -> None:
    assert any(reason in problem for problem in problems(properties))


def test_brokers_and_controllers_apart() -> None:
    assert NodeConfig.from_properties(BROKER).controller_listeners == ()
    assert NodeConfig.from_properties(CONTROLLER).broker_listeners == ()


def test_ipv6_and_named_listeners() -> None:
    config = NodeConfig.from_properties(
        COMBINED
        | {
            "listeners": "INSIDE://[::1]:9092,OUTSIDE://0.0.0.0:9094,CONTROLLER://[::1]:9093",
            "advertised.listeners": "INSIDE://[::1]:9092,OUTSIDE://example.org:19094",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            "controller.quorum.voters": "1@[::1]:9093",
        }
    )
    assert config.advertised[1] == Listener("OUTSIDE", "example.org", 19094, "PLAINTEXT")
    assert config.voters == (Voter(1, "::1", 9093),)
    assert str(config.listeners[0]) == "INSIDE://[::1]:9092"


def test_brokers_do_not_share_the_memory_for_requests_with_clients_where_they_have_a_listener() -> None:
    two = {
        "listeners": "INSIDE://:9092,OUTSIDE://:9094,MORE://:9095,CONTROLLER://:9093",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,MORE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "queued.max.request.bytes": str(200 << 20),
    }
    memories = request_memories(NodeConfig.from_properties(COMBINED | two))
    assert list(memories) == ["INSIDE", "OUTSIDE", "MORE"]
    assert memories["INSIDE"] is not memories["OUTSIDE"] is memories["MORE"]
    assert memories["INSIDE"].decoded.limit_bytes == memories["OUTSIDE"].decoded.limit_bytes == 200 << 20
    assert list(request_memories(NodeConfig.from_properties(COMBINED))) == ["PLAINTEXT"]


REFUSED = [
    ({"process.roles": "broker,janitor"}, "process.roles=broker,janitor: a role is broker or controller"),
    ({"node.id": "-1"}, "node.id=-1: it must be between 0 and 2147483647"),
    ({"node.id": "one"}, "node.id=one: it is no whole number; write a whole number"),
    ({"auto.create.topics.enable": "yes"}, "auto.create.topics.enable=yes: it is neither true nor false"),
    ({"controller.quorum.voters": "1@localhost"}, "'1@localhost' is no id@host:port"),
    ({"controller.quorum.voters": "1@a:1,1@b:2"}, "node 1 is named twice"),
    ({"controller.quorum.voters": "2@localhost:9093"}, "node.id=1 is a controller and not among the voters"),
    ({"controller.quorum.voters": ""}, "the quorum must be known; set it"),
    ({"controller.quorum.voters": "1@localhost:9999"}, "it names port 9999 for this node, whose listener CONTROLLER"),
    ({"process.roles": "broker", "listeners": "PLAINTEXT://:9092"}, "is among the voters and has no controller role"),
    (
        {"controller.listener.names": "", "listeners": "PLAINTEXT://:1"},
        "every node must know by which listener controllers talk",
    ),
    ({"listeners": "PLAINTEXT://localhost:9092"}, "a controller must listen on one of controller.listener.names"),
    ({"listeners": "CONTROLLER://localhost:9093"}, "a broker needs a listener for clients"),
    ({"listeners": "PLAINTEXT//x"}, "'PLAINTEXT//x' is no NAME://host:port"),
    ({"listeners": "PLAINTEXT://h:70000,CONTROLLER://h:9093"}, "port 70000 of PLAINTEXT is outside 0 to 65535"),
    ({"listeners": "X://h:1,CONTROLLER://h:9093"}, "add X:PLAINTEXT to listener.security.protocol.map"),
    (
        {
            "listeners": "SASL_SSL://h:1,CONTROLLER://h:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        },
        "add SASL_SSL:SASL_SSL to listener.security.protocol.map",
    ),
    ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "the name PLAINTEXT comes twice"),
    (
        {"listeners": "PLAINTEXT://h:9093,CONTROLLER://h:9093"},
        "listener CONTROLLER has port 9093, as listener PLAINTEXT has",
    ),
    ({"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"}, "set advertised.listeners=PLAINTEXT://"),
    ({"listener.security.protocol.map": "PLAINTEXT"}, "'PLAINTEXT' is no NAME:PROTOCOL"),
    ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "clients cannot connect to 0.0.0.0"),
    ({"advertised.listeners": "SSL://h:9092"}, "there is no listener SSL"),
    ({"security.inter.broker.protocol": "SSL"}, "no broker listener has this name"),
    ({"ssl.client.auth": "perhaps"}, "it must be one of required, requested, none"),
    ({"listener.name.inside.ssl.client.auth": "perhaps"}, "it must be one of required, requested, none"),
    ({"inter.broker.listener.name": "INSIDE"}, "no broker listener has this name"),
    ({"log.dirs": "/a,/a/"}, "a directory is named twice"),
    ({"log.dirs": "/a/b,/a//b"}, "a directory is named twice"),
    ({"log.dirs": "/a,,/b"}, "a directory's name is empty"),
    ({"log.dirs": " "}, "no directory is named"),
    ({"broker.heartbeat.interval.ms": "5000"}, "at most half of broker.session.timeout.ms=9000; lower it to 4500"),
    ({"controller.quorum.election.timeout.ms": "3000"}, "at most the fetch timeout"),
    ({"replica.fetch.wait.max.ms": "20000"}, "at most half of replica.lag.time.max.ms=30000"),
    ({"queued.max.request.bytes": "1000"}, "would never be read; raise it to 104857600 or more"),
    ({"message.max.bytes": "200000000"}, "does not fit in a request of socket.request.max.bytes=104857600"),
    ({"log.message.timestamp.type": "Now"}, "it must be one of CreateTime, LogAppendTime"),
]


@pytest.mark.parametrize(("change", "reason"), REFUSED, ids=[next(iter(change)) for change, _ in REFUSED])
def test_refused(change: dict[str, str], reason: str) -> None:
    told = problems(COMBINED | change)
    assert any(reason in line for line in told), told
    for line in told:
        head, _, way_out = line.rpartition(";")
        assert head and way_out.strip(), line
        assert "=" in line.split(":")[0] or "is not set" in line


def test_a_default_in_a_problem_is_shown_as_such() -> None:
    told = problems(COMBINED | {"broker.session.timeout.ms": "3000"})
    assert told == [
        "broker.heartbeat.interval.ms=2000 (the default): one lost heartbeat would fence the broker: it must be at "
        "most half of broker.session.timeout.ms=3000; lower it to 1500 or less, or raise broker.session.timeout.ms=3000"
    ]


def test_all_problems_at_once() -> None:
    told = problems({"node.id": "x", "num.partitions": "0"})
    assert [line.partition("=")[0].partition(" ")[0] for line in told] == [
        "process.roles",
        "node.id",
        "num.partitions",
        "controller.listener.names",
        "controller.quorum.voters",
    ]


@pytest.mark.parametrize(
    ("change", "is_advised"), [({"node.id": "-1"}, False), ({"compression.gzip.level": "0"}, True)]
)
def test_only_a_setting_that_has_a_default_can_be_left_out(change: dict[str, str], is_advised: bool) -> None:
    with pytest.raises(ConfigError) as refused:
        NodeConfig.from_properties(COMBINED | change)
    assert ("or remove the line for the default" in str(refused.value)) is is_advised


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"node.id=1\nlog.dirs=C\\u12x", "n1.properties: line 2: \\u12x is not a Unicode escape: "),
        (b"# one\n\nlog.dirs=a,\\\n b,\\uZ", "n1.properties: line 4: \\uZ is not"),
        (b"\x7fELF\0", "n1.properties: it is not a text file; name a file of settings"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_line(content: bytes, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(content, file="n1.properties")
    assert str(refused.value).startswith(told)


def test_broker_id_is_refused_with_its_new_name() -> None:
    changed = {key: value for key, value in COMBINED.items() if key != "node.id"} | {"broker.id": "1"}
    assert problems(changed) == ["broker.id=1: the node's id is called node.id; rename the key to node.id"]


def test_warnings() -> None:
    config = NodeConfig.from_properties(
        COMBINED
        | {
            "num.io.threads": "8",
            "num.partition": "3",
            "colour": "blue",
            "min.insync.replicas": "2",
        }
    )
    near, unknown, insync, threads = config.warnings
    assert threads == "accepted for Kafka's sake, without effect in this version: num.io.threads"
    assert near == "num.partition=3: unknown, and has no effect; did you mean num.partitions?"
    assert unknown == "colour=blue: unknown, and has no effect; no setting has this name"
    assert insync.startswith("min.insync.replicas=2: larger than default.replication.factor=1")


@pytest.mark.parametrize("family", ["log.retention", "group.share", "sasl.kerberos", "transaction.state"])
def test_a_misspelt_setting_is_not_taken_for_one_of_kafka(family: str) -> None:
    (warning,) = NodeConfig.from_properties(COMBINED | {f"{family}.hour": "1"}).warnings
    assert warning.startswith(f"{family}.hour=1: unknown, and has no effect")
    assert ("log.retention.hours" in warning) == (family == "log.retention")


def test_the_own_settings_of_a_policy_are_not_said_to_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    house = ModuleType("house")
    monkeypatch.setattr(house, "Rules", type("Rules", (), {"validate": lambda self, request: None}), raising=False)
    monkeypatch.setitem(sys.modules, "house", house)
    policy = {"create.topic.policy.class.name": "house:Rules", "house.partitions.max": "5", "num.partition": "3"}
    (warning,) = NodeConfig.from_properties(COMBINED | policy).warnings
    assert "did you mean num.partitions?" in warning


def test_the_shipped_settings_of_kafka_load_without_unknown_keys() -> None:
    shipped = """
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
num.partitions=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
    config = load_config(shipped, overrides=[f"{key}={value}" for key, value in COMBINED.items()])
    assert not [line for line in config.warnings if "unknown" in line]


def test_file_then_environment_then_overrides() -> None:
    text = "".join(f"{key}={value}\n" for key, value in (COMBINED | {"num.partitions": "2"}).items())
    environ = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_MESSAGE_MAX_BYTES": "4"}
    config = load_config(text, environ=environ, overrides=["num.partitions=5"])
    assert config["num.partitions"] == 5
    assert config["message.max.bytes"] == 4


def test_a_misspelt_override_is_refused_with_a_suggestion() -> None:
    text = "".join(f"{key}={value}\n" for key, value in COMBINED.items())
    with pytest.raises(ConfigError, match=r"min\.insync\.replica=2: .*did you mean min\.insync\.replicas\?"):
        load_config(text, overrides=["min.insync.replica=2"])
    with pytest.raises(ConfigError, match="raftwerk settings lists them"):
        load_config(text, overrides=["no.such.thing=2"])
    assert "num.io.threads" in str(load_config(text, overrides=["num.io.threads=2"]).warnings)
    in_file = load_config(f"{text}min.insync.replica=2\n")
    assert "did you mean min.insync.replicas?" in str(in_file.warnings)


def test_a_policy_s_own_settings_may_have_any_name() -> None:
    policy = {"create.topic.policy.class.name": "support.policies:Any"}
    assert misspelt_names(["my.prefix", "num.partition"], policy) == ["num.partition"]
    assert misspelt_names(["my.prefix", "num.partition"], {}) == ["my.prefix", "num.partition"]


def test_an_override_without_equals_sign() -> None:
    with pytest.raises(ConfigError, match="it is no key=value"):
        load_config("", overrides=["num.partitions"])


def test_every_configuration_is_described() -> None:
    text = describe_broker_configs()
    assert all(f"{name}  (" in text for name in BROKER_CONFIGS)
    names = [line.partition("  (")[0] for line in describe_broker_configs("log.segment").splitlines()[::2]]
    assert names == ["log.segment.bytes", "log.segment.delete.delay.ms", "transaction.state.log.segment.bytes"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"compression.gzip.level": "0"}, "compression.gzip.level=0: it must be -1, or between 1 and 9"),
        ({"log.cleaner.io.max.bytes.per.second": "fast"}, "it is no number; write a number, for example 0.5"),
        ({"log.cleaner.io.max.bytes.per.second": "0"}, "it must be at least 1"),
        ({"log.cleaner.min.cleanable.ratio": "1.5"}, "it must be between 0 and 1"),
        ({"num.partitions": "1_000"}, "it is no whole number"),
        ({"num.partitions": "3000000000"}, "it does not fit in 32 bits"),
        ({"log.retention.bytes": "9223372036854775808"}, "it does not fit in 64 bits"),
        ({"log.cleanup.policy": "shred"}, "it must be one of compact, delete"),
    ],
)
def test_values_that_apache_kafka_refuses(change: dict[str, str], reason: str) -> None:
    assert any(reason in line for line in problems(COMBINED | change)), problems(COMBINED | change)


def test_a_double_is_parsed() -> None:
    config = NodeConfig.from_properties(COMBINED | {"log.cleaner.io.max.bytes.per.second": "1000000"})
    assert config["log.cleaner.io.max.bytes.per.second"] == 1_000_000.0
    assert log_manager_config(config, "c", lambda _path, _error: None).cleaner.io_bytes_per_s == 1_000_000.0


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("replica.fetch.response.max.bytes", 10 << 20, 256 << 20),
        ("replica.fetch.response.max.bytes", 500 << 20, 516 << 20),
        ("socket.request.max.bytes", 1 << 30, (1 << 30) + (16 << 20)),
    ],
)
def test_a_follower_takes_the_largest_response_that_its_settings_allow(key: str, value: int, expected: int) -> None:
    """It would connect again and again, and never get past a larger one."""
    config = NodeConfig.from_properties(COMBINED | {key: str(value)})
    assert broker_config(config, "c", ()).fetched_frame_bytes_max == expected


def test_how_much_of_the_metadata_is_fetched_at_a_time() -> None:
    config = NodeConfig.from_properties(COMBINED)
    raft = raft_config(config, "c", UUID(int=1))
    assert (raft.fetch_max_bytes, raft.snapshot_fetch_max_bytes) == (8_388_608, 8_388_608)
    keys = {"controller.quorum.fetch.max.bytes": "1000", "controller.quorum.fetch.snapshot.max.bytes": "200"}
    raft = raft_config(NodeConfig.from_properties(COMBINED | keys), "c", UUID(int=1))
    assert (raft.fetch_max_bytes, raft.snapshot_fetch_max_bytes) == (1_000, 200)
    assert requests.fetch_snapshot(raft, 1, SnapshotId(5, 1), 0).max_bytes == 200


def test_the_delay_of_preferred_leaders_is_served() -> None:
    assert controller_settings(NodeConfig.from_properties(COMBINED)).leader_imbalance_check_interval_ms == 5_000
    config = NodeConfig.from_properties(COMBINED | {"leader.imbalance.check.interval.seconds": "3600"})
    assert controller_settings(config).leader_imbalance_check_interval_ms == 3_600_000
    assert not [line for line in config.warnings if "imbalance" in line]


@pytest.mark.parametrize(
    "key",
    [
        "sasl.jaas.config",
        "listener.name.plaintext.sasl.jaas.config",
        "listener.name.plaintext.plain.sasl.server.max.receive.size",
    ],
)
def test_what_no_listener_reads_is_said_to_have_no_effect(key: str) -> None:
    (warning,) = NodeConfig.from_properties(COMBINED | {key: "5"}).warnings
    assert key in warning and "without effect" in warning


def test_the_users_of_a_listener_and_mechanism_have_an_effect() -> None:
    key = "listener.name.plaintext.plain.sasl.jaas.config"
    assert NodeConfig.from_properties(COMBINED | {key: "x required;"}).warnings == ()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"metrics.port": "9092"}, "metrics.port=9092: it has port 9092, as listener PLAINTEXT has"),
        (
            {"listeners": "PLAINTEXT://localhost:9093,CONTROLLER://localhost:9093"},
            "listener CONTROLLER has port 9093, as listener PLAINTEXT has",
        ),
    ],
)
def test_one_port_is_not_for_two(changed: dict[str, str], reason: str) -> None:
    assert any(reason in problem for problem in problems(COMBINED | changed))


def test_a_mistyped_prefix_of_a_listener_gets_a_suggestion() -> None:
    config = NodeConfig.from_properties(COMBINED | {"listner.name.plaintext.ssl.keystore.locaton": "x"})
    assert any("did you mean listener.name.plaintext.ssl.keystore.location?" in one for one in config.warnings)


def test_all_mistakes_are_told_at_once_and_those_that_may_follow_from_others_are_not() -> None:
    wrong = COMBINED | {
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER:9093",
        "num.network.threads": "many",
        "controller.quorum.voters": "1@localhost",
        "log.dirs": "/data/a,/data/a",
        "broker.session.timeout.ms": "soon",
        "broker.heartbeat.interval.ms": "8000",
        "socket.request.max.bytes": "2000000",
        "queued.max.request.bytes": "1000",
    }
    told = problems(wrong)
    assert [one.partition("=")[0] for one in told] == [
        "broker.session.timeout.ms",
        "num.network.threads",
        "listeners",
        "controller.quorum.voters",
        "log.dirs",
        "queued.max.request.bytes",
    ]
    bare = problems({"log.dirs": "/data/a,/data/a", "listeners": "PLAINTEXT://localhost:9092"})
    assert [one.partition(":")[0] for one in bare] == [
        "process.roles is not set",
        "node.id is not set",
        "controller.listener.names is not set",
        "controller.quorum.voters is not set",
        "log.dirs=/data/a,/data/a",
    ]


def test_ports_that_clash_are_told_once() -> None:
    (told,) = problems(COMBINED | {"listeners": "PLAINTEXT://localhost:9093,CONTROLLER://localhost:9093"})
    assert "listener CONTROLLER has port 9093, as listener PLAINTEXT has" in told


def test_misspelt_overrides_do_not_hide_other_mistakes() -> None:
    text = "".join(f"{name}={value}\n" for name, value in COMBINED.items() if name != "log.dirs")
    with pytest.raises(ConfigError) as caught:
        load_config(text, overrides=["log.dir", "num.partition=5", "num.io.threads=none"])
    assert [one.key for one in caught.value.problems] == ["--override", "num.partition", "num.io.threads"]


def test_a_directory_is_the_same_with_more_slashes() -> None:
    config = NodeConfig.from_properties(COMBINED | {"log.dirs": "/data/a,/data//b/", "metadata.log.dir": "//data/b/"})
    assert config.log_dirs == config.all_dirs == ("/data/a", "/data/b")
    assert config.metadata_log_dir == "/data/b"
    by_log_dir = {name: value for name, value in COMBINED.items() if name != "log.dirs"} | {"log.dir": "//"}
    root = NodeConfig.from_properties(by_log_dir | {"metadata.log.dir": "a/../b/"})
    assert root.all_dirs == ("/", "a/../b")
