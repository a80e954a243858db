"""`raftwerk groups` as people call it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.e2e import helpers
from support.e2e.command import fails, fails_usage
from support.e2e.consumers import CLASSIC, CONSUMER, COUNT, PARTITIONS, confluent, fill, read
from support.e2e.in_process import ok

from raftwerk.cluster.local.supervisor import Supervisor


@pytest.mark.parametrize("config", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_list_describe_lag_reset_delete(
    bootstrap: str,
    filled: str,
    config: dict[str, str],
    tmp_path: Path,
) -> None:
    at = ("-b", bootstrap)
    group = filled
    consumer = confluent(bootstrap, group, **config)
    consumer.subscribe([filled])
    assert read([consumer], COUNT) == list(range(COUNT))
    consumer.commit(asynchronous=False)
    described = json.loads(ok("groups", "describe", group, "--json", *at))
    (member,) = described["members"]
    assert described["state"] == "Stable"
    assert sorted(member["partitions"]) == [f"{filled}-{partition}" for partition in range(PARTITIONS)]
    assert f"{filled}-0, {filled}-1" in ok("groups", "describe", group, *at)
    assert [row["lag"] for row in described["partitions"]] == [0] * PARTITIONS
    for execute in ((), ("--execute",)):
        told = fails(1, "groups", "reset", group, "--topic", filled, "--to", "0", *execute, *at)
        assert (
            "it has 1 member, and offsets can be set only when all have left" in told and "stop its consumers" in told
        )
    assert "has members" in fails(1, "groups", "delete", group, *at)
    consumer.close()

    listed = [json.loads(line) for line in ok("groups", "list", "--json", *at).splitlines()]
    kind = config.get("group.protocol", "classic")
    assert [(row["state"], row["type"]) for row in listed if row["group"] == group] == [("Empty", kind)]
    fill(bootstrap, filled, COUNT, create=False)
    assert lags(group, at) == [50] * PARTITIONS
    assert "50 -> 40" in ok("groups", "reset", group, "--topic", filled, "--shift=-10", *at)
    assert lags(group, at) == [50] * PARTITIONS, "without --execute nothing changes"
    ok("groups", "reset", group, "--topic", filled, "--shift=-10", "--execute", *at)
    assert lags(group, at) == [60] * PARTITIONS
    ok("groups", "reset", group, "--topic", filled, "--to", "latest", "--execute", *at)
    assert lags(group, at) == [0] * PARTITIONS
    ok("groups", "reset", group, "--topic", filled, "--time", "2020-01-01", "--execute", *at)
    assert lags(group, at) == [100] * PARTITIONS
    ok("groups", "reset", group, "--topic", f"{filled}:0,1", "--to", "latest", "--execute", *at)
    assert lags(group, at)[:3] == [0, 0, 100]
    assert f"{filled}-99: there is no such partition" in fails(
        1, "groups", "reset", group, "--topic", f"{filled}:99", "--to", "latest", *at
    )
    plan = tmp_path / "offsets.json"
    plan.write_text(json.dumps({filled: {"0": 7, "1": 10**9}}))
    told = ok("groups", "reset", group, "--file", str(plan), "--execute", *at)
    assert "(1000000000 is beyond the end)" in told and "no group" not in told
    assert f"There is no group {group}-new yet" in ok("groups", "reset", f"{group}-new", "-t", filled, "--to", "0", *at)
    assert lags(group, at)[:3] == [93, 0, 100]
    plan.write_text(json.dumps({filled: {"0": 7}}))
    ok("groups", "reset", f"{group}-one", "--file", str(plan), "--execute", *at)
    assert f"{group}-one  lag " in ok("groups", "lag", *at)
    told = ok("groups", "lag", f"{group}-one", *at)
    assert f"lag 93 without {PARTITIONS - 1} partitions that have no committed offset" in told
    assert f"Deleted group {group}" in ok("groups", "delete", group, *at)
    assert "no such group" in fails(1, "groups", "delete", group, *at)


def lags(group: str, at: tuple[str, ...]) -> list[Any]:
    return [row["lag"] for row in json.loads(ok("groups", "lag", group, "--json", *at))["partitions"]]


def test_what_is_wrong_is_said_in_a_sentence(bootstrap: str, topic: str) -> None:
    at = ("-b", bootstrap)
    assert "give one of" in fails_usage("groups", "reset", "g", "--topic", topic, *at)
    assert "no such group" in fails(1, "groups", "describe", f"none-{topic}", *at)
    assert "neither earliest" in fails_usage("groups", "reset", "g", "--topic", topic, "--to", "soon", *at)


def test_a_group_that_does_not_exist(bootstrap: str, topic: str) -> None:
    at = ("-b", bootstrap)
    for command in ("lag", "describe", "delete"):
        assert "there is no such group" in fails(1, "groups", command, f"none-{topic}", *at)


def test_looking_for_a_group_does_not_create_the_offsets_topic(new_cluster: Callable[..., Supervisor]) -> None:
    at = ("-b", new_cluster(1).plan.bootstrap)
    ok("topics", "create", "t", *at)
    for command in ("lag", "describe", "delete"):
        assert "there is no such group" in fails(1, "groups", command, "nope", *at)
    assert "Nothing was changed" in ok("groups", "reset", "nope", "--topic", "t", "--to", "latest", *at)
    assert "__consumer_offsets" not in ok("topics", "list", *at)
    ok("groups", "reset", "nope", "--topic", "t", "--to", "latest", "--execute", *at)
    assert lags("nope", at) == [0]


def test_the_offset_of_a_partition_is_set_while_another_has_no_leader(
    new_cluster: Callable[..., Supervisor], topic: str
) -> None:
    cluster = new_cluster(3)
    bootstrap = cluster.plan.bootstrap
    helpers.create_on(bootstrap, topic, [[1], [2]])
    at = ("-b", bootstrap)
    ok("produce", topic, "-p", "0", "-m", "a", "-m", "b", *at)
    ok("groups", "reset", "g", "--topic", topic, "--to", "earliest", "--execute", *at)
    cluster.kill(2)
    for to in ("1", "latest"):
        assert f"{topic}-0" in ok("groups", "reset", "g", "--topic", f"{topic}:0", "--to", to, "--execute", *at)
