"""Which offsets `raftwerk groups reset` takes from its options."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from raftwerk.cli.administration import groups as group_commands
from raftwerk.cli.administration.groups import _Wanted
from raftwerk.cli.main import cli
from raftwerk.cluster.client.client_errors import ClientError
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.group_client import GroupClient
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
