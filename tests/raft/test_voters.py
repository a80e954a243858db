"""Voter sets, their history, and their records on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.raft.nodes import FragileDisk

from raftwerk.log.errors import StorageError
from raftwerk.raft.messages.control_records import encode_control, voter_records
from raftwerk.raft.messages.messages import AddVoter, ChangeReply, RemoveVoter, UpdateVoter, VoterChange
from raftwerk.raft.messages.voter_messages import (
    change_reply_fields,
    change_request_fields,
    parse_change,
    parse_change_reply,
    parse_probe_reply,
)
from raftwerk.raft.messages.wire_messages import api_of
from raftwerk.raft.snapshots.snapshot_store import SnapshotStore, encode_snapshot, snapshot_batches
from raftwerk.raft.types import NO_DIRECTORY, ReplicaKey
from raftwerk.raft.voters.voter_set import (
    BOOTSTRAP_OFFSET,
    ControlRecord,
    KRaftVersion,
    LeaderChange,
    VersionRange,
    Voter,
    VoterEndpoint,
    VoterHistory,
    VoterListener,
    VoterSet,
)
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import decode_data, decode_request, decode_response, encode_request, encode_response
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.records import ControlRecordType, control_record_type, encode_batch
from raftwerk.wire.types import SnapshotId


def voter(node_id: int, directory: int | None = None) -> Voter:
    listeners = (VoterListener("CONTROLLER", f"n{node_id}", 9093), VoterListener("OTHER", "else", 1))
    return Voter(ReplicaKey(node_id, UUID(int=directory or node_id)), listeners)


def voters(*ids: int) -> VoterSet:
    return VoterSet.of(voter(i) for i in ids)


def test_a_voter_is_an_id_with_its_directory() -> None:
    found = voters(3, 1)
    assert found.ids == [1, 3]
    assert found.is_voter(ReplicaKey(3, UUID(int=3)))
    assert not found.is_voter(ReplicaKey(3, UUID(int=4)))
    assert not found.is_voter(ReplicaKey(3)), "one that does not say which directory it has is nobody"
    assert found.with_voter(voter(3, 13)).keys[1] == ReplicaKey(3, UUID(int=13))
    assert found.without_voter(3).ids == [1]


def test_static_voters_are_known_by_id_alone() -> None:
    found = VoterSet.static({2: VoterEndpoint("b", 2), 1: VoterEndpoint("a", 1)}, "CONTROLLER")
    assert found.ids == [1, 2]
    assert found.is_voter(ReplicaKey(2, UUID(int=77))) and found.is_voter(ReplicaKey(2))
    assert found.voters[0].endpoint("CONTROLLER") == VoterEndpoint("a", 1)


def test_endpoint_of_the_listener_or_the_first() -> None:
    assert voter(1).endpoint("OTHER") == VoterEndpoint("else", 1)
    assert voter(1).endpoint("UNHEARD") == VoterEndpoint("n1", 9093)
    assert Voter(ReplicaKey(1), ()).endpoint("CONTROLLER") is None


@dataclass
class NaiveLog:
    """All records, from which everything is read anew."""

    base: list[ControlRecord]
    start: int
    records: list[tuple[int, ControlRecord]]

    def below(self, end: int) -> list[ControlRecord]:
        return [*self.base, *(record for offset, record in self.records if offset < end)]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 3), st.integers(1, 4)),
            st.tuples(st.just("version"), st.integers(1, 3), st.integers(1, 1)),
            st.tuples(st.just("truncate"), st.integers(0, 8), st.just(0)),
            st.tuples(st.just("snapshot"), st.integers(0, 30), st.integers(1, 4)),
        ),
        max_size=12,
    )
)
def test_history_is_what_the_records_say(steps: list[tuple[str, int, int]]) -> None:
    history, naive, end = VoterHistory(), NaiveLog([], 0, []), 0
    for what, number, ids in steps:
        if what in ("add", "version"):
            end += number
            record: ControlRecord = voters(*range(ids + 1)) if what == "add" else KRaftVersion(ids)
            history.add(end - 1, record)
            naive.records.append((end - 1, record))
        elif what == "truncate":
            end = max(naive.start, end - number)
            history.truncate_to(end)
            naive.records = [entry for entry in naive.records if entry[0] < end]
        else:
            base: list[ControlRecord] = [KRaftVersion(1), voters(*range(ids))]
            end = number
            history.start_from(end, base)
            naive = NaiveLog(base, end, [])
        for at in range(naive.start, end + 1):
            below = naive.below(at)
            sets = [record for record in below if isinstance(record, VoterSet)]
            versions = [record.level for record in below if isinstance(record, KRaftVersion)]
            assert history.voters_at(at) == (sets[-1] if sets else None)
            assert history.version_at(at) == (versions[-1] if versions else 0)
        assert history.last == history.voters_at(end) and history.version == history.version_at(end)
        later = VoterHistory()
        later.start_from(end, history.snapshot_records(end))
        assert (later.last, later.version) == (history.last, history.version), "a snapshot tells the same"


def test_what_counted_at_an_offset_is_what_the_records_below_it_say() -> None:
    history = VoterHistory()
    for offset, level in ((2, 1), (5, 2)):
        history.add(offset, KRaftVersion(level))
        history.add(offset + 1, voters(*range(1, level + 1)))
    assert [history.version_at(end) for end in (0, 2, 3, 5, 6, 9)] == [0, 0, 1, 1, 2, 2]
    known = [history.voters_at(end) for end in (3, 4, 6, 7)]
    assert known == [None, voters(1), voters(1), voters(1, 2)]
    assert history.snapshot_records(4) == [KRaftVersion(1), voters(1)]
    assert history.snapshot_records(3) == [KRaftVersion(1)]
    assert history.snapshot_records(2) == []


def test_formatted_voters_are_before_the_log() -> None:
    history = VoterHistory()
    assert history.last is None and history.version == 0
    history.start_from(0, [KRaftVersion(1), voters(1)])
    assert history.last_offset == BOOTSTRAP_OFFSET
    history.truncate_to(0)
    assert history.last == voters(1)


def test_the_last_change_of_the_voters_is_not_a_correction_of_their_endpoints() -> None:
    history = VoterHistory()

    def last_change() -> tuple[int, VoterSet | None]:
        return history.last_change

    assert last_change() == (BOOTSTRAP_OFFSET, None)
    history.add(2, voters(1, 2))
    history.add(5, voters(1, 2))
    assert last_change() == (2, None)
    history.add(7, voters(1))
    history.add(9, voters(1))
    assert last_change() == (7, voters(1, 2))
    history.truncate_to(7)
    assert last_change() == (2, None)


RECORDS: list[ControlRecord] = [LeaderChange(1, (ReplicaKey(1, UUID(int=1)),), ()), KRaftVersion(1), voters(1, 2)]


def test_control_records_round_trip() -> None:
    batch = encode_batch([encode_control(record, 5) for record in RECORDS], base_offset=7, is_control=True)
    assert list(voter_records(batch)) == [(8, RECORDS[1]), (9, RECORDS[2])]
    with pytest.raises(ProtocolError):
        list(voter_records(encode_batch([encode_control(RECORDS[2], 5)._replace(value=b"\0")], is_control=True)))


def test_control_records_are_kafkas() -> None:
    keys = [control_record_type(encode_control(record, 0).key) for record in RECORDS]
    assert keys == [ControlRecordType.LEADER_CHANGE, ControlRecordType.KRAFT_VERSION, ControlRecordType.KRAFT_VOTERS]
    change = decode_data("leader_change_message", 0, encode_control(RECORDS[0], 0).value or b"")
    assert (change.leader_id, change.voters[0].voter_id) == (1, 1)
    record = decode_data("voters_record", 0, encode_control(RECORDS[2], 0).value or b"")
    assert record.voters[1].voter_id == 2 and record.voters[1].k_raft_version_feature.max_supported_version == 1
    assert record.voters[1].endpoints[0].host == "n2"
    assert voters(1).voters[0].versions == VersionRange(0, 1)


def test_a_snapshot_holds_the_voters(tmp_path: Path) -> None:
    snapshot_id = SnapshotId(10, 2)
    controls: list[ControlRecord] = [KRaftVersion(1), voters(1, 2)]
    data = b"".join(encode_snapshot(snapshot_id, 5, iter([[b"a"], [b"b"]]), controls))
    assert [*snapshot_batches(data)] == [[b"a"], [b"b"]]
    store = SnapshotStore(FragileDisk(), str(tmp_path))
    with open(store.path(snapshot_id), "wb") as file:
        file.write(data)
    assert SnapshotStore(store.disk, str(tmp_path)).controls(snapshot_id) == controls
    with open(store.path(snapshot_id), "r+b") as file:
        file.truncate(40)
    with pytest.raises(StorageError):
        store.controls(snapshot_id)


CHANGES: list[VoterChange] = [
    AddVoter(cluster_id="c", voter=voter(4), timeout_ms=700, ack_when_committed=False),
    RemoveVoter(cluster_id=None, voter=voter(4).key),
    UpdateVoter(cluster_id="c", epoch=3, voter=Voter(voter(4).key, voter(4).listeners, VersionRange(0, 2))),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
def test_changes_round_trip(change: VoterChange) -> None:
    key, version = api_of(change)
    decoded = decode_request(key, version, encode_request(key, version, change_request_fields(change)), 0)
    assert parse_change(key, decoded) == change
    reply = ChangeReply(error=ErrorCode.DUPLICATE_VOTER, leader_id=2, epoch=5, leader_endpoint=VoterEndpoint("h", 1))
    fields = change_reply_fields(key, reply)
    answer = decode_response(key, version, encode_response(key, version, fields))
    assert parse_change_reply(answer).error is ErrorCode.DUPLICATE_VOTER
    if isinstance(change, UpdateVoter):
        assert (answer.current_leader.leader_id, answer.current_leader.host) == (2, "h")


def test_voters_are_read_of_whole_batches_unless_an_incomplete_one_may_come() -> None:
    records = [encode_control(record, 5) for record in (KRaftVersion(1), voters(1))]
    whole = bytes(encode_batch(records, base_offset=7, is_control=True))
    assert list(voter_records(whole)) == [(7, KRaftVersion(1)), (8, voters(1))]
    assert list(voter_records(whole + whole[:-1], allow_partial_tail=True)) == [(7, KRaftVersion(1)), (8, voters(1))]
    with pytest.raises(ProtocolError):
        list(voter_records(whole + whole[:-1]))


def test_the_first_version_of_an_addition_waits_for_the_commit() -> None:
    fields = change_request_fields(AddVoter(cluster_id="c", voter=voter(4), timeout_ms=1, ack_when_committed=False))
    data = encode_request(ApiKey.ADD_RAFT_VOTER, 0, fields)
    parsed = parse_change(ApiKey.ADD_RAFT_VOTER, decode_request(ApiKey.ADD_RAFT_VOTER, 0, memoryview(data)))
    assert isinstance(parsed, AddVoter)
    assert parsed.ack_when_committed


@pytest.mark.parametrize(("asked_ms", "timeout_ms"), [(-1, 0), (0, 0), (1, 1)])
def test_an_addition_waits_for_no_negative_time(asked_ms: int, timeout_ms: int) -> None:
    fields = change_request_fields(AddVoter(cluster_id="c", voter=voter(4), timeout_ms=asked_ms))
    data = encode_request(ApiKey.ADD_RAFT_VOTER, 1, fields)
    parsed = parse_change(ApiKey.ADD_RAFT_VOTER, decode_request(ApiKey.ADD_RAFT_VOTER, 1, memoryview(data)))
    assert isinstance(parsed, AddVoter)
    assert parsed.timeout_ms == timeout_ms


def test_a_change_may_be_of_node_0() -> None:
    fields = change_request_fields(RemoveVoter(cluster_id="c", voter=ReplicaKey(0, UUID(int=7))))
    data = encode_request(ApiKey.REMOVE_RAFT_VOTER, 0, fields)
    parsed = parse_change(ApiKey.REMOVE_RAFT_VOTER, decode_request(ApiKey.REMOVE_RAFT_VOTER, 0, memoryview(data)))
    assert parsed.voter == ReplicaKey(0, UUID(int=7))


def test_changes_name_a_replica() -> None:
    for key in (ReplicaKey(4, NO_DIRECTORY), ReplicaKey(-1, UUID(int=1))):
        fields = change_request_fields(RemoveVoter(cluster_id=None, voter=key))
        raw = encode_request(ApiKey.REMOVE_RAFT_VOTER, 0, fields)
        with pytest.raises(ProtocolError):
            parse_change(ApiKey.REMOVE_RAFT_VOTER, decode_request(ApiKey.REMOVE_RAFT_VOTER, 0, raw, 0))
    twice = AddVoter(cluster_id=None, voter=Voter(voter(4).key, voter(4).listeners * 2), timeout_ms=1)
    raw = encode_request(ApiKey.ADD_RAFT_VOTER, 1, change_request_fields(twice))
    with pytest.raises(ProtocolError):
        parse_change(ApiKey.ADD_RAFT_VOTER, decode_request(ApiKey.ADD_RAFT_VOTER, 1, raw, 0))


def test_a_controller_that_does_not_name_the_feature_is_old() -> None:
    fields = {"error_code": 0, "api_keys": [], "supported_features": []}
    raw = encode_response(ApiKey.API_VERSIONS, 4, fields)
    assert parse_probe_reply(decode_response(ApiKey.API_VERSIONS, 4, raw)).versions == VersionRange(0, 0)
    fields["supported_features"] = [{"name": "kraft.version", "min_version": 0, "max_version": 1}]
    raw = encode_response(ApiKey.API_VERSIONS, 4, fields)
    assert parse_probe_reply(decode_response(ApiKey.API_VERSIONS, 4, raw)).versions == VersionRange(0, 1)
