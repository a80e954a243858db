"""What `raftwerk log dump --records` tells of the metadata log: its records, and the voters of the quorum."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner

from raftwerk.cli.main import cli
from raftwerk.cluster.node.formatting import parse_controllers
from raftwerk.controller.metadata.metadata_records import (
    PLAIN_RECORDS,
    ConfigRecord,
    TopicRecord,
    UserScramCredentialRecord,
    encode_record,
)
from raftwerk.raft.snapshots.snapshot_store import encode_snapshot, snapshot_name
from raftwerk.raft.types import LOG_BEGIN, ReplicaKey
from raftwerk.raft.voters.voter_set import KRaftVersion, Voter, VoterListener, VoterSet

TOPIC = TopicRecord("flights", UUID(int=7 << 64))
SECRET = UserScramCredentialRecord("alice", 2, b"salt", b"stored-key", b"server-key", 4096)
VOTERS = VoterSet.of(
    Voter(ReplicaKey(one, UUID(int=one << 64)), (VoterListener("CONTROLLER", "127.0.0.1", 9092 + one),))
    for one in (1, 2)
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a snapshot of the metadata."""
    records = [encode_record(one, PLAIN_RECORDS) for one in (TOPIC, ConfigRecord(2, "flights", "k", "v"), SECRET)]
    found = tmp_path / "__cluster_metadata-0"
    found.mkdir()
    written = encode_snapshot(LOG_BEGIN, 0, iter([[*records, b"no record"]]), [KRaftVersion(1), VOTERS])
    (found / snapshot_name(LOG_BEGIN)).write_bytes(b"".join(written))
    return found


def dump(path: Path, *options: str) -> str:
    result = CliRunner().invoke(cli, ["log", "dump", str(path), "--records", *options])
    assert result.exit_code == 0, result.output
    return result.output


def test_records_of_metadata_are_told(directory: Path) -> None:
    rows = [json.loads(line) for line in dump(directory, "--json").splitlines()]
    found = {row["type"]: row["fields"] for row in rows if "type" in row}
    assert found["TopicRecord"]["name"] == "flights" and found["ConfigRecord"]["value"] == "v"
    assert (found["UserScramCredentialRecord"]["name"], found["UserScramCredentialRecord"]["salt"]) == (
        "alice",
        "4 bytes",
    )
    assert [row["value"] for row in rows if row.get("value")] == ["no record"]
    assert [row["kraft_version"] for row in rows if "kraft_version" in row] == [1]


def test_the_voters_are_told_as_format_takes_them(directory: Path) -> None:
    (line,) = [one for one in dump(directory).splitlines() if "voters=" in one]
    assert VoterSet.of(parse_controllers(line.partition("voters=")[2], ["CONTROLLER"])) == VOTERS
    assert line in dump(directory / snapshot_name(LOG_BEGIN))


def test_records_of_other_topics_are_bytes(directory: Path) -> None:
    other = directory.parent / "t-0"
    directory.rename(other)
    text = dump(other / snapshot_name(LOG_BEGIN))
    assert "value=" in text and "TopicRecord" not in text
