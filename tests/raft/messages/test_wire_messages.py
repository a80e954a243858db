"""The quorum's messages on the wire: what is sent is what the other side reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from raftwerk.raft.messages.messages import (
    BeginQuorumEpoch,
    ChangeReply,
    EndQuorumEpoch,
    EpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    SnapshotReply,
    Vote,
    VoteReply,
)
from raftwerk.raft.messages.voter_messages import change_reply_fields, parse_change_reply
from raftwerk.raft.messages.wire_messages import (
    FETCH_VERSION,
    api_of,
    election_reply_fields,
    election_request_fields,
    fetch_request,
    fetch_response,
    fetch_snapshot_fields,
    fetch_snapshot_request_fields,
    parse_election_reply,
    parse_fetch,
    parse_fetch_reply,
    parse_fetch_snapshot,
    parse_request,
    parse_snapshot_reply,
    refused_fetch_response,
)
from raftwerk.raft.types import METADATA_TOPIC_ID, ReplicaKey
from raftwerk.raft.voters.voter_set import VoterEndpoint
from raftwerk.runtime.files.file_slice import in_memory
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import decode_request, decode_response, encode_request, encode_response
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.fetch import (
    UNKNOWN_HIGH_WATERMARK,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    decode_fetch_request,
    decode_fetch_response,
    encode_fetch_request,
    encode_fetch_response,
)
from raftwerk.wire.types import EpochEndOffset, SnapshotId

LISTENER = "CONTROLLER"
AT = VoterEndpoint("n2", 9093)
KEYS = tuple(ReplicaKey(node_id, UUID(int=node_id + 100)) for node_id in (1, 2, 3))

VOTES = [
    Vote(cluster_id="c", voter=KEYS[0], candidate=KEYS[1], epoch=5, last_epoch=4, last_offset=9, pre_vote=pre_vote)
    for pre_vote in (False, True)
]
FIRST_VOTE = Vote(
    cluster_id="c", voter=ReplicaKey(1), candidate=ReplicaKey(0), epoch=0, last_epoch=0, last_offset=0, pre_vote=False
)
BEGIN = BeginQuorumEpoch(cluster_id="c", voter=KEYS[0], leader_id=2, epoch=5, leader_endpoint=AT)
FIRST_BEGIN = BeginQuorumEpoch(cluster_id=None, voter=ReplicaKey(1), leader_id=0, epoch=0)
END = EndQuorumEpoch(cluster_id="c", leader_id=2, epoch=5, preferred_successors=KEYS[:2], leader_endpoint=AT)
FETCH_SNAPSHOT = FetchSnapshot(
    cluster_id="c", replica=KEYS[1], epoch=5, snapshot_id=SnapshotId(40, 3), position=64, max_bytes=1000
)


@pytest.mark.parametrize("request_", [*VOTES, FIRST_VOTE, BEGIN, FIRST_BEGIN, END])
def test_elections(request_: Vote | BeginQuorumEpoch | EndQuorumEpoch) -> None:
    key, version = api_of(request_)
    data = encode_request(key, version, election_request_fields(request_, LISTENER))
    assert parse_request(key, decode_request(key, version, data, 0), LISTENER) == request_


def test_only_the_endpoint_of_the_own_listener_is_the_leaders() -> None:
    key, version = api_of(BEGIN)
    data = encode_request(key, version, election_request_fields(BEGIN, "OTHER"))
    parsed = parse_request(key, decode_request(key, version, data, 0), LISTENER)
    assert isinstance(parsed, BeginQuorumEpoch)
    assert parsed.leader_endpoint is None


def test_successors_of_the_first_version_are_ids() -> None:
    data = encode_request(ApiKey.END_QUORUM_EPOCH, 0, election_request_fields(END, LISTENER))
    parsed = parse_request(ApiKey.END_QUORUM_EPOCH, decode_request(ApiKey.END_QUORUM_EPOCH, 0, data, 0), LISTENER)
    assert isinstance(parsed, EndQuorumEpoch)
    assert parsed.preferred_successors == (ReplicaKey(1), ReplicaKey(2))


FETCH = Fetch(cluster_id="c", replica=KEYS[1], epoch=5, fetch_offset=9, last_epoch=4, max_wait_ms=500, max_bytes=1000)


@pytest.mark.parametrize("high_watermark", [7, 0, -1, None])
def test_fetches(high_watermark: int | None) -> None:
    fetch = replace(FETCH, high_watermark=high_watermark)
    _, version = api_of(fetch)
    assert parse_fetch(decode_fetch_request(version, encode_fetch_request(version, fetch_request(fetch)))) == fetch


def test_a_fetch_names_the_metadata_partition_and_belongs_to_no_session() -> None:
    for known, told in ((None, UNKNOWN_HIGH_WATERMARK), (7, 7)):
        request = fetch_request(replace(FETCH, high_watermark=known))
        (topic,) = request.topics
        assert (topic.name, topic.topic_id) == ("__cluster_metadata", UUID(int=1))
        (partition,) = topic.partitions
        assert (partition.partition, partition.fetch_offset, partition.current_leader_epoch) == (0, 9, 5)
        assert (partition.last_fetched_epoch, partition.log_start_offset) == (4, 0)
        assert (partition.max_bytes, partition.replica_directory_id) == (1000, KEYS[1].directory_id)
        assert partition.high_watermark == told
        assert (request.replica_id, request.max_wait_ms, request.max_bytes, request.cluster_id) == (2, 500, 1000, "c")


def test_the_answer_to_a_fetch_has_the_high_watermark_as_its_stable_offset_and_the_leaders_address() -> None:
    reply = FetchReply(
        error=ErrorCode.NONE,
        leader_id=2,
        epoch=5,
        leader_endpoint=AT,
        high_watermark=7,
        log_start_offset=3,
        records=b"r",
    )
    response = fetch_response(reply)
    assert response.error_code == 0
    (topic,) = response.topics
    assert (topic.name, topic.topic_id) == ("__cluster_metadata", UUID(int=1))
    (row,) = topic.partitions
    assert (row.partition, row.error_code, row.high_watermark, row.last_stable_offset) == (0, 0, 7, 7)
    assert (row.log_start_offset, row.records) == (3, b"r")
    assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [(2, "n2", 9093)]
    storage = fetch_response(replace(reply, error=ErrorCode.KAFKA_STORAGE_ERROR))
    assert (storage.error_code, list(storage.topics)) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    for unknown in (replace(reply, leader_id=None), replace(reply, leader_endpoint=None)):
        assert not fetch_response(unknown).node_endpoints


def test_a_refused_fetch_gets_the_error_for_all_that_it_asked_for() -> None:
    topics = [
        FetchTopic("a", None, [FetchPartition(3), FetchPartition(4)]),
        FetchTopic("", UUID(int=9), [FetchPartition(0)]),
    ]
    response = refused_fetch_response(FetchRequest(topics=topics), ErrorCode.KAFKA_STORAGE_ERROR)
    assert [(one.name, one.topic_id) for one in response.topics] == [("a", None), ("", UUID(int=9))]
    rows = [(row.partition, row.error_code) for one in response.topics for row in one.partitions]
    assert rows == [(at, ErrorCode.KAFKA_STORAGE_ERROR) for at in (3, 4, 0)]


def test_what_a_fetch_allows_is_never_negative() -> None:
    fetch = replace(FETCH, max_wait_ms=-1, max_bytes=-1)
    parsed = parse_fetch(fetch_request(fetch))
    assert (parsed.max_wait_ms, parsed.max_bytes) == (0, 0)


def test_a_fetch_is_held_to_the_smaller_of_its_two_bounds() -> None:
    for of_partition, of_request in ((5, 7), (7, 5)):
        request = fetch_request(FETCH)
        request.topics[0].partitions[0].max_bytes = of_partition
        request.max_bytes = of_request
        assert parse_fetch(request).max_bytes == 5


def test_a_fetch_of_another_topic_by_its_id_is_refused() -> None:
    for topic_id, error in [(UUID(int=9), ErrorCode.UNKNOWN_TOPIC_ID), (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]:
        request = fetch_request(FETCH)
        request.topics = [request.topics[0]._replace(name="t", topic_id=topic_id)]
        with pytest.raises(ProtocolError) as refused:
            parse_fetch(request)
        assert refused.value.code is error


@pytest.mark.parametrize(("max_bytes", "allowed"), [(-1, 0), (0, 0), (1, 1)])
def test_what_a_fetch_of_a_snapshot_allows_is_never_negative(max_bytes: int, allowed: int) -> None:
    key, version = api_of(FETCH_SNAPSHOT)
    fields = fetch_snapshot_request_fields(replace(FETCH_SNAPSHOT, max_bytes=max_bytes))
    decoded = decode_request(key, version, encode_request(key, version, fields), 0)
    assert parse_fetch_snapshot(decoded).max_bytes == allowed


def test_fetches_of_snapshots() -> None:
    key, version = api_of(FETCH_SNAPSHOT)
    data = encode_request(key, version, fetch_snapshot_request_fields(FETCH_SNAPSHOT))
    assert parse_fetch_snapshot(decode_request(key, version, data, 0)) == FETCH_SNAPSHOT


LEADERS: list[dict[str, Any]] = [
    {"leader_id": 2, "leader_endpoint": AT},
    {"leader_id": 0, "leader_endpoint": AT},
    {"leader_id": 2},
    {"leader_id": None},
]


@pytest.mark.parametrize("leader", LEADERS)
def test_replies_name_the_leader_and_where_it_listens(leader: dict[str, Any]) -> None:
    for granted in (False, True):
        vote = VoteReply(error=ErrorCode.NONE, epoch=5, granted=granted, **leader)
        assert through_the_wire(VOTES[0], vote) == vote
    refused = EpochReply(error=ErrorCode.FENCED_LEADER_EPOCH, epoch=6, **leader)
    assert through_the_wire(BEGIN, refused) == refused
    fetched = FetchReply(
        error=ErrorCode.NONE, epoch=5, high_watermark=3, log_start_offset=1, diverging=EpochEndOffset(4, 8),
        snapshot_id=SnapshotId(40, 3), records=b"records", **leader,
    )  # fmt: skip
    assert fetched_through_the_wire(fetched) == fetched
    part = SnapshotReply(error=ErrorCode.NONE, epoch=5, size_bytes=100, position=64, data=b"part", **leader)
    key, version = api_of(FETCH_SNAPSHOT)
    data = encode_response(key, version, fetch_snapshot_fields(FETCH_SNAPSHOT, part))
    assert parse_snapshot_reply(decode_response(key, version, data)) == part


def fetched_through_the_wire(reply: FetchReply) -> FetchReply:
    data = in_memory(encode_fetch_response(FETCH_VERSION, fetch_response(reply)))
    return parse_fetch_reply(decode_fetch_response(FETCH_VERSION, data))


def through_the_wire(request_: Vote | BeginQuorumEpoch, reply: VoteReply | EpochReply) -> object:
    key, version = api_of(request_)
    data = encode_response(key, version, election_reply_fields(reply))
    return parse_election_reply(request_, decode_response(key, version, data))


def test_an_error_of_the_whole_request_comes_without_leader_and_epoch() -> None:
    error = ErrorCode.INCONSISTENT_CLUSTER_ID
    vote = VoteReply(error=error, leader_id=2, epoch=5, leader_endpoint=AT, granted=True)
    assert through_the_wire(VOTES[0], vote) == VoteReply(error=error, leader_id=None, epoch=0, granted=False)
    fetched = FetchReply(error=error, leader_id=2, epoch=5)
    assert fetched_through_the_wire(fetched) == FetchReply(error=error, leader_id=None, epoch=0)
    key, version = api_of(FETCH_SNAPSHOT)
    part = SnapshotReply(error=error, leader_id=2, epoch=5)
    data = encode_response(key, version, fetch_snapshot_fields(FETCH_SNAPSHOT, part))
    assert parse_snapshot_reply(decode_response(key, version, data)) == SnapshotReply(
        error=error, leader_id=None, epoch=0
    )


def test_an_answer_to_a_fetch_that_names_no_leader_tells_no_epoch() -> None:
    row = FetchPartitionResponse(partition=0, error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    response = FetchResponse(topics=[FetchTopicResponse(name="", topic_id=METADATA_TOPIC_ID, partitions=[row])])
    assert row.current_leader is None
    reply = parse_fetch_reply(response)
    assert (reply.error, reply.leader_id, reply.epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None, 0)


def test_a_refusal_tells_no_high_watermark() -> None:
    refusal = FetchReply(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=None, epoch=5)
    (row,) = fetch_response(refusal).topics[0].partitions
    assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (-1, -1, 0)
    assert (row.records, row.diverging_epoch, row.snapshot_id) == (b"", None, None)
    assert fetched_through_the_wire(refusal) == refusal


def test_a_vote_that_came_with_an_error_does_not_count() -> None:
    granted = VoteReply(error=ErrorCode.FENCED_LEADER_EPOCH, leader_id=None, epoch=5, granted=True)
    parsed = through_the_wire(VOTES[0], granted)
    assert isinstance(parsed, VoteReply)
    assert not parsed.granted


def test_a_refused_change_says_why_and_promises_no_epoch() -> None:
    reply = ChangeReply(error=ErrorCode.DUPLICATE_VOTER, leader_id=2, epoch=5, message="there already")
    fields = change_reply_fields(ApiKey.ADD_RAFT_VOTER, reply)
    data = encode_response(ApiKey.ADD_RAFT_VOTER, 1, fields)
    assert parse_change_reply(decode_response(ApiKey.ADD_RAFT_VOTER, 1, data)) == ChangeReply(
        error=ErrorCode.DUPLICATE_VOTER, leader_id=None, epoch=0, message="there already"
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda topics: topics.clear(),
        lambda topics: topics.append(topics[0]),
        lambda topics: topics[0]["partitions"].append(topics[0]["partitions"][0]),
    ],
    ids=["no topic", "two topics", "two partitions"],
)
def test_what_is_not_about_the_one_partition_is_refused(change: Any) -> None:
    for request_ in (VOTES[0], FETCH_SNAPSHOT):
        key, version = api_of(request_)
        if isinstance(request_, Vote):
            fields = election_request_fields(request_, LISTENER)
        else:
            fields = fetch_snapshot_request_fields(request_)
        change(fields["topics"])
        decoded = decode_request(key, version, encode_request(key, version, fields), 0)
        with pytest.raises(ProtocolError):
            parse_request(key, decoded, LISTENER) if isinstance(request_, Vote) else parse_fetch_snapshot(decoded)
    key, version = api_of(VOTES[0])
    fields = election_reply_fields(VoteReply(error=ErrorCode.NONE, leader_id=None, epoch=5))
    change(fields["topics"])
    response = decode_response(key, version, encode_response(key, version, fields))
    with pytest.raises(ProtocolError):
        parse_election_reply(VOTES[0], response)


@pytest.mark.parametrize("request_", [VOTES[0], BEGIN, END, FETCH_SNAPSHOT])
@pytest.mark.parametrize("other", ["topic", "partition"])
def test_another_topic_or_partition_is_unknown(request_: Any, other: str) -> None:
    is_snapshot = isinstance(request_, FetchSnapshot)
    fields = fetch_snapshot_request_fields(request_) if is_snapshot else election_request_fields(request_, LISTENER)
    (topic,) = fields["topics"]
    if other == "topic":
        topic["name" if is_snapshot else "topic_name"] = "t"
    else:
        topic["partitions"][0]["partition" if is_snapshot else "partition_index"] = 1
    key, version = api_of(request_)
    decoded = decode_request(key, version, encode_request(key, version, fields), 0)
    with pytest.raises(ProtocolError) as refused:
        parse_fetch_snapshot(decoded) if is_snapshot else parse_request(key, decoded, LISTENER)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_refused_update_names_the_leader_and_where_it_listens() -> None:
    cases = [(2, AT, (2, 5, "n2", 9093)), (0, AT, (0, 5, "n2", 9093)), (None, None, (-1, 5, "", 0))]
    for leader_id, endpoint, expected in cases:
        reply = ChangeReply(
            error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=leader_id, epoch=5, leader_endpoint=endpoint
        )
        fields = change_reply_fields(ApiKey.UPDATE_RAFT_VOTER, reply)
        data = encode_response(ApiKey.UPDATE_RAFT_VOTER, 0, fields)
        told = decode_response(ApiKey.UPDATE_RAFT_VOTER, 0, data)
        leader = told.current_leader
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (leader.leader_id, leader.leader_epoch, leader.host, leader.port) == expected


@pytest.mark.parametrize("field", ["replica_epoch", "replica_id", "last_offset", "last_offset_epoch"])
def test_a_vote_without_a_candidate_or_its_end_is_refused(field: str) -> None:
    key, version = api_of(VOTES[0])
    fields = election_request_fields(VOTES[0], LISTENER)
    fields["topics"][0]["partitions"][0][field] = -1
    with pytest.raises(ProtocolError):
        parse_request(key, decode_request(key, version, encode_request(key, version, fields), 0), LISTENER)


@pytest.mark.parametrize("field", ["leader_epoch", "leader_id"])
def test_an_epoch_of_nobody_does_not_begin(field: str) -> None:
    key, version = api_of(BEGIN)
    fields = election_request_fields(BEGIN, LISTENER)
    fields["topics"][0]["partitions"][0][field] = -1
    with pytest.raises(ProtocolError):
        parse_request(key, decode_request(key, version, encode_request(key, version, fields), 0), LISTENER)
