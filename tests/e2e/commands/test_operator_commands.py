"""`raftwerk partitions|configs|brokers|features|quorum` as operators and scripts call them."""

from __future__ import annotations

import json
import time
from typing import Any

from support.e2e import helpers
from support.e2e.command import fails, fails_usage, raftwerk
from support.e2e.in_process import ok


def rows(*arguments: str) -> list[Any]:
    return [json.loads(line) for line in ok(*arguments, "--json").splitlines()]


def values(*arguments: str) -> dict[str, str]:
    return {row["name"]: row["value"] for row in rows("configs", "show", *arguments)}


def shows(name: str, value: str | None, *arguments: str) -> None:
    """The value is there, or gone, as soon as the broker that is asked has heard of it."""
    deadline = time.monotonic() + 10
    while values(*arguments).get(name) != value:
        assert time.monotonic() < deadline, values(*arguments)


def test_configs(bootstrap: str, topic: str) -> None:
    at = ("-b", bootstrap)
    helpers.create_topic(bootstrap, topic)
    for resource, key, value in (
        (("--topic", topic), "retention.ms", "60000"),
        (("--broker", "1"), "log.retention.ms", "70000"),
        (("--all-brokers",), "log.retention.ms", "80000"),
        (("--group", topic), "consumer.session.timeout.ms", "50000"),
        (("--client-metrics", topic), "interval.ms", "5000"),
    ):
        ok("configs", "set", *resource, f"{key}={value}", *at)
        shows(key, value, *resource, *at)
        ok("configs", "unset", *resource, key, *at)
        shows(key, None, *resource, *at)
    assert ok("configs", "set", "--loggers", "1", "raftwerk.groups=DEBUG", *at).startswith("Set raftwerk.groups of ")
    shows("raftwerk.groups", "DEBUG", "--loggers", "1", *at)
    ok("configs", "unset", "--loggers", "1", "raftwerk.groups", *at)
    assert "consumer.heartbeat.interval.ms" in values("--group", topic, "--all", *at)
    refused = fails(1, "configs", "set", "--group", topic, "consumer.session.timeout.ms=5", *at)
    assert "must be greater than or equal to group.consumer.min.session.timeout.ms" in refused
    for resource, wrong, meant in (
        (("--topic", topic), "retention.mss", "retention.ms"),
        (("--broker", "1"), "log.retention.mss", "log.retention.ms"),
        (("--group", topic), "consumer.session.timeout", "consumer.session.timeout.ms"),
    ):
        assert fails(1, "configs", "set", *resource, f"{wrong}=1", *at).endswith(f"; did you mean {meant}?")
        unset = fails(1, "configs", "unset", *resource, wrong, *at)
        assert f"there is no setting {wrong}" in unset and unset.endswith(f"; did you mean {meant}?")
    assert "there is no setting foo" in fails(1, "configs", "unset", "--all-brokers", "foo", *at)
    ok("configs", "unset", "--topic", topic, "retention.ms", *at)
    ok("configs", "unset", "--broker", "1", "listener.name.plaintext.max.connections", *at)
    misspelt = fails(1, "topics", "create", f"{topic}-x", "-c", "retention.mss=1", *at)
    assert misspelt.endswith("; did you mean retention.ms?")
    assert "does not exist" in fails(1, "configs", "set", "--loggers", "1", "nobody=INFO", *at)
    metrics = fails(1, "configs", "set", "--client-metrics", topic, "metric=x", *at)
    assert f"client metrics {topic}: " in metrics and metrics.endswith("; did you mean metrics?")


def test_mistakes_in_quotas_have_a_way_out(bootstrap: str) -> None:
    at = ("-b", bootstrap)
    for entity, wrong, told in (
        (("--user", "zoe"), "producr_byte_rate", "; did you mean producer_byte_rate?"),
        (("--user", "zoe"), "connection_creation_rate", "; connection_creation_rate is for addresses (--ip)"),
        (("--ip", "192.0.2.1"), "producer_byte_rate", " is for users and client ids (--user, --client-id)"),
    ):
        assert fails(1, "quotas", "set", *entity, f"{wrong}=1", *at).endswith(told)
        assert fails(1, "quotas", "remove", *entity, wrong, *at).endswith(told)
    both = fails(1, "quotas", "set", "--user", "zoe", "--ip", "192.0.2.1", "producer_byte_rate=1", *at)
    assert both.endswith("; give --ip alone, or leave it out")
    assert "has no such quota" in fails(1, "quotas", "remove", "--user", "zoe", "producer_byte_rate", *at)


def test_partitions(bootstrap: str, topic: str) -> None:
    at = ("-b", bootstrap)
    helpers.create_topic(bootstrap, topic, 1, 2)
    ok("partitions", "reassign", f"{topic}-0=3,1", "--wait", *at)
    assert list(helpers.describe(bootstrap, topic).topic(topic).partitions[0].replicas) == [3, 1]
    assert raftwerk("partitions", "reassignments", *at).stderr == "Nothing is moving.\n"
    assert f"{topic}-0" in ok("partitions", "elect", f"{topic}-0", *at)
    both = raftwerk("partitions", "elect", "--all", f"{topic}-0", *at)
    assert both.returncode == 2 and f"--all means all partitions: leave it out, or {topic}-0" in both.stderr
    lower = raftwerk("features", "set", "raftwerk.record.version=0", *at)
    assert lower.returncode == 1 and "a lower level needs --downgrade" in lower.stderr


def test_brokers_and_quorum(bootstrap: str) -> None:
    at = ("-b", bootstrap)
    assert [row["broker"] for row in rows("brokers", "list", *at)] == [1, 2, 3]
    assert "77" in fails(1, "brokers", "unregister", "77", *at)
    assert "broker 2 is alive, and would register again: stop it first" in fails(1, "brokers", "unregister", "2", *at)
    assert "leader" in ok("quorum", *at).lower()


def test_features(bootstrap: str) -> None:
    at = ("-b", bootstrap)
    found = {row["feature"]: row for row in rows("features", "list", *at)}
    assert found["eligible.leader.replicas.version"]["level"] == 1
    name = "eligible.leader.replicas.version"
    assert "is possible" in ok("features", "set", f"{name}=0", "--downgrade", "--dry-run", *at)
    assert "downgrade" in fails(1, "features", "set", f"{name}=0", *at)
    assert "supports" in fails(1, "features", "set", "metadata.version=999", *at)
    assert "a level is a number" in fails_usage("features", "set", f"{name}=high", *at)
