"""Which offsets `raftwerk groups reset` takes from its options, and what is told of groups that are seen in part."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from raftwerk.cli.administration import groups as group_commands
from raftwerk.cli.administration.groups import _Wanted
from raftwerk.cli.main import cli
from raftwerk.cluster.client.client_errors import ClientError, RefusedError
from raftwerk.cluster.client.cluster_client import ClusterClient, Gathered
from raftwerk.cluster.client.group_client import GroupClient, GroupView, LagView, MemberView
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition


def shifted(topic: str, *committed: int) -> dict[TopicPartition, int]:
    """The new offsets of a group that is shifted by one, in a topic with two partitions, from these offsets."""

    class Groups(GroupClient):
        async def partitions(self, topic: str) -> list[int]:
            return [0, 1]

    before = {TopicPartition("t", one): at for one, at in enumerate(committed)}
    groups = Groups(ClusterClient("localhost:1"))
    return asyncio.run(_Wanted(topic, None, 1, None, None).offsets(groups, before))


def test_an_offset_in_a_partition_that_is_gone_does_not_hinder_a_shift() -> None:
    """The topic was deleted, and created again with fewer partitions."""
    assert shifted("t", 5, 6, 7) == {TopicPartition("t", 0): 6, TopicPartition("t", 1): 7}
    assert shifted("t", 5) == {TopicPartition("t", 0): 6}
    assert shifted("t:1", 5, 6, 7) == {TopicPartition("t", 1): 7}


def test_a_shift_needs_an_offset() -> None:
    with pytest.raises(ClientError, match="t-1: the group has no offset there"):
        shifted("t:1", 5)
    with pytest.raises(ClientError, match="the group has no offsets in t"):
        shifted("t")
    with pytest.raises(ClientError, match="t-2: there is no such partition"):
        shifted("t:2", 5, 6, 7)


@pytest.mark.parametrize("text", ['{"t": {"0": 1e400}}', "[" * 100_000])
def test_a_file_without_offsets_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "offsets.json"
    path.write_text(text)
    told = CliRunner().invoke(cli, ["groups", "reset", "g", "--file", str(path), "-b", "localhost:1"])
    assert told.exit_code == 2 and 'write {"topic"' in told.stderr


def test_a_file_names_the_topics(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_text('{"t": {"0": 1}}')
    told = CliRunner().invoke(cli, ["groups", "reset", "g", "--file", str(path), "-t", "t", "-b", "localhost:1"])
    assert told.exit_code == 2 and "leave --topic out" in told.stderr


def test_a_group_s_name_does_not_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(work: Coroutine[Any, Any, Any]) -> Any:
        work.close()
        return [{"group": "a\x1b[2Jb", "state": "Stable", "type": "consumer", "coordinator": 1}], []

    monkeypatch.setattr(group_commands, "run_client", answer)
    shown = CliRunner().invoke(cli, ["groups", "list", "-b", "localhost:9092"])
    assert shown.output.startswith("a\\x1b[2Jb")


NO_END = "t-1: no broker leads this partition, and the lag is missing"


class Cluster:
    """The groups a and b, each two records behind in t-0; nobody leads t-1."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gone: list[str] = []
        """Groups that are deleted after they were listed."""
        self.missing: list[str] = []
        """What the list of the groups lacks."""
        self.is_led = True
        for method in (self.list_groups, self.members, self.lags):
            monkeypatch.setattr(GroupClient, method.__name__, method)

    async def list_groups(self) -> Gathered[GroupView]:
        return Gathered([GroupView(one, "Empty", "classic", "", 1) for one in ("a", "b")], list(self.missing))

    async def members(self, group: str) -> tuple[str, list[MemberView]]:
        if group in self.gone:
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group}", "there is no such group")
        return "Empty", []

    async def lags(self, _group: str, _assigned: Sequence[TopicPartition] = ()) -> Gathered[LagView]:
        rows = [LagView("t", 0, 1, 3), LagView("t", 1, 5, 5 if self.is_led else None)]
        return Gathered(rows, [] if self.is_led else [NO_END])

    def told(self, *words: str) -> Result:
        return CliRunner().invoke(cli, ["groups", *words, "-b", "localhost:1"])


def test_a_group_that_is_deleted_meanwhile_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.gone = ["a"]
    told = cluster.told("lag")
    assert (told.exit_code, told.stderr) == (0, "")
    assert told.stdout.startswith("b  lag 2\n") and "a  lag" not in told.stdout
    told = cluster.told("lag", "a")
    assert told.exit_code == 1 and "group a: there is no such group" in told.stderr


def test_a_partition_without_a_leader_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.is_led = False
    told = cluster.told("lag")
    assert (told.exit_code, told.stderr.count(NO_END)) == (1, 1)
    head, led, unled, *other = told.stdout.splitlines()
    assert head == "a  lag 2 without 1 partition that has no known end"
    assert (led.split(), unled.split()) == (
        ["t-0", "committed", "1", "end", "3", "lag", "2"],
        ["t-1", "committed", "5", "end", "-", "lag", "-"],
    )
    assert other[0].startswith("b  lag 2")
    told = cluster.told("describe", "a")
    assert told.exit_code == 1 and NO_END in told.stderr and told.stdout.splitlines()[1:] == [led, unled]
    (row,) = (json.loads(line) for line in cluster.told("describe", "a", "--json").stdout.splitlines())
    assert row["partitions"][1] == {"topic": "t", "partition": 1, "committed": 5, "end": None, "lag": None}


def test_a_watch_of_lags_tells_each_time_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.missing = ["broker 2 (h:2) refuses the connection: the groups that it coordinates are missing"]
    rounds: list[float] = []

    async def sleep(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 3:
            raise ClientError("the end of the test")

    monkeypatch.setattr(asyncio, "sleep", sleep)
    told = cluster.told("lag", "--watch")
    assert told.stderr.count("Incomplete: broker 2 (h:2) refuses the connection") == len(rounds) == 3


def test_offsets_that_are_set_beside_a_refused_one_are_told() -> None:
    class Groups(GroupClient):
        async def ask(self, group_id: str, api: ApiKey, version: int, fields: Any, rows: str = "") -> Struct:
            return Struct({"topics": [topic("a", 0, 0), topic("b", ErrorCode.TOPIC_AUTHORIZATION_FAILED)]})

    def topic(name: str, *codes: int) -> Struct:
        rows = [Struct({"partition_index": one, "error_code": code}) for one, code in enumerate(codes)]
        return Struct({"name": name, "partitions": rows})

    wanted = {TopicPartition(*one): 1 for one in (("a", 0), ("a", 1), ("b", 0))}
    with pytest.raises(RefusedError) as told:
        asyncio.run(Groups(ClusterClient("localhost:1")).commit("g", wanted))
    assert told.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert str(told.value).startswith("group g, b-0: ") and str(told.value).endswith("; offsets set: a-0, a-1")
