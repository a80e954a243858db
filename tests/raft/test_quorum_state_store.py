from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.raft.driver.quorum_state_store import (
    QUORUM_STATE_FILE,
    QuorumStateError,
    QuorumStateStore,
    format_quorum_state,
    parse_quorum_state,
)
from raftwerk.raft.types import EPOCH_MAX, ElectionState, ReplicaKey
from raftwerk.runtime.files.real_disk import RealDisk

IDS = st.integers(0, 2**31 - 1)
STATES = st.builds(
    ElectionState,
    epoch=st.integers(0, EPOCH_MAX),
    leader_id=st.none() | IDS,
    voted=st.none() | st.builds(ReplicaKey, IDS, st.uuids()),
)


@given(STATES)
def test_round_trip(state: ElectionState) -> None:
    assert parse_quorum_state(format_quorum_state(state)) == state


@pytest.mark.parametrize("state", [ElectionState(), ElectionState(EPOCH_MAX, 2**31 - 1, ReplicaKey(2**31 - 1))])
def test_the_least_and_the_greatest_numbers_are_read(state: ElectionState) -> None:
    assert parse_quorum_state(format_quorum_state(state)) == state


def test_is_what_apache_kafka_writes() -> None:
    assert format_quorum_state(ElectionState(3, 1, None)) == (
        b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )


def test_version_0_is_read() -> None:
    written = (
        b'{"clusterId":"","leaderId":-1,"leaderEpoch":2,"votedId":3,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":3}],"data_version":0}'
    )
    assert parse_quorum_state(written) == ElectionState(2, None, ReplicaKey(3, UUID(int=0)))


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"{}", b'{"data_version":1}', b'{"leaderId":1,"leaderEpoch":1,"votedId":-1}', b"\xff"],
)
def test_a_damaged_file_is_an_error(data: bytes) -> None:
    with pytest.raises(QuorumStateError):
        parse_quorum_state(data)


@pytest.mark.parametrize(
    ("name", "value"),
    [("leaderEpoch", -1), ("leaderEpoch", 2**31 - 1), ("leaderEpoch", 2**31), ("leaderId", -2), ("votedId", 2**31)],
)
def test_numbers_that_cannot_be_sent_are_refused_with_the_file_and_the_way_out(
    tmp_path: Path, name: str, value: int
) -> None:
    path = tmp_path / QUORUM_STATE_FILE
    path.write_text(json.dumps(json.loads(format_quorum_state(ElectionState(3, 1))) | {name: value}))
    with pytest.raises(QuorumStateError, match=f"{name} is {value}.*Treat this controller") as refused:
        QuorumStateStore(RealDisk(), str(tmp_path)).read()
    assert str(path) in str(refused.value)


def test_unknown_version_is_refused() -> None:
    fields = json.loads(format_quorum_state(ElectionState()))
    with pytest.raises(QuorumStateError, match="data_version 2"):
        parse_quorum_state(json.dumps(fields | {"data_version": 2}).encode())
