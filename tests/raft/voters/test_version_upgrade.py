"""Finalizing `kraft.version`: the static voters are recorded in the log."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from support.raft.memory_log import MemoryLog

from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.quorum import Quorum
from raftwerk.raft.types import ElectionState, NotLeaderError, ReplicaKey
from raftwerk.raft.voters.voter_set import VoterEndpoint
from raftwerk.wire.errors import ErrorCode, ProtocolError


def lone_leader() -> tuple[Quorum, MemoryLog]:
    """A lone static voter, which leads and has committed nothing yet."""
    log = MemoryLog()
    config = RaftConfig(node_id=1, cluster_id="c", voters={1: VoterEndpoint("n1", 9093)}, directory_id=UUID(int=7))
    quorum = Quorum(config, log, ElectionState(), random.Random(0))
    quorum.start(0)
    assert quorum.state.is_leader
    return quorum, log


def commit(quorum: Quorum, log: MemoryLog) -> None:
    log.flush()
    quorum.on_flushed(0)


def refusal(quorum: Quorum, level: int) -> ErrorCode:
    with pytest.raises(ProtocolError) as refused:
        quorum.upgrade_kraft_version(1, level, validate_only=False)
    return refused.value.code


def test_an_upgrade_waits_for_the_commit_of_the_epochs_first_record() -> None:
    quorum, log = lone_leader()
    assert refusal(quorum, 1) is ErrorCode.REQUEST_TIMED_OUT
    assert log.end_offset == 1, "nothing was appended"
    commit(quorum, log)
    quorum.upgrade_kraft_version(1, 1, validate_only=False)
    assert [entry.payload for entry in log.entries[1:]] == [b"kraft.version 1", b"voters 1/7"]
    assert quorum.state.voters.keys == [ReplicaKey(1, UUID(int=7))], "the voters count with their directories at once"
    leader = quorum.state.role.as_leader()
    assert leader is not None and leader.replicas.voters == quorum.state.voters


def test_a_check_of_an_upgrade_appends_nothing() -> None:
    quorum, log = lone_leader()
    commit(quorum, log)
    quorum.upgrade_kraft_version(1, 1, validate_only=True)
    assert log.end_offset == 1
    assert quorum.state.log.voters.last is None


def test_a_level_that_is_finalized_is_no_change_and_a_lower_one_is_refused() -> None:
    quorum, log = lone_leader()
    commit(quorum, log)
    quorum.upgrade_kraft_version(1, 0, validate_only=False)
    assert log.end_offset == 1
    quorum.upgrade_kraft_version(1, 1, validate_only=False)
    quorum.upgrade_kraft_version(1, 1, validate_only=False)
    assert log.end_offset == 3
    assert refusal(quorum, 0) is ErrorCode.INVALID_UPDATE_VERSION
    assert log.end_offset == 3


def test_only_the_leader_of_the_epoch_upgrades() -> None:
    quorum, log = lone_leader()
    commit(quorum, log)
    with pytest.raises(NotLeaderError):
        quorum.upgrade_kraft_version(2, 1, validate_only=False)
    quorum.resign(1)
    with pytest.raises(NotLeaderError):
        quorum.upgrade_kraft_version(1, 1, validate_only=False)
    assert log.end_offset == 1
