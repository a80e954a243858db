"""The quorum's messages to and from Kafka's schemas: Vote, Begin- and EndQuorumEpoch, Fetch, FetchSnapshot.

Every request has exactly one topic with one partition. Error codes are the partition's, except for those that concern
the request as a whole (`TOP_LEVEL_ERRORS`).
"""

from __future__ import annotations

from typing import Any

from ...wire.api_keys import ApiKey
from ...wire.errors import ErrorCode, ProtocolError, known_error
from ...wire.fetch import (
    UNKNOWN_HIGH_WATERMARK,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
)
from ...wire.primitives import NodeEndpoint
from ...wire.types import LeaderIdAndEpoch, SnapshotId
from ..types import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID, NO_DIRECTORY, ReplicaKey
from ..voters.voter_set import VoterEndpoint
from .messages import (
    AddVoter,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    ProbeVoter,
    RemoveVoter,
    Reply,
    Request,
    SnapshotReply,
    UpdateVoter,
    Vote,
    VoteReply,
)

VOTE_VERSION = 2
EPOCH_VERSION = 1
FETCH_SNAPSHOT_VERSION = 1
ADD_VERSION, REMOVE_VERSION, UPDATE_VERSION, API_VERSIONS_VERSION = 1, 0, 0, 4
FETCH_VERSION = 18
"""Version 18 has the high watermark that the replica knows: the leader answers at once when it has a higher one."""

TOP_LEVEL_ERRORS = (
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_NO_NODE = -1


def api_of(request: Request) -> tuple[ApiKey, int]:
    """The API key and the version in which this node sends `request`."""
    match request:
        case Vote():
            return ApiKey.VOTE, VOTE_VERSION
        case BeginQuorumEpoch():
            return ApiKey.BEGIN_QUORUM_EPOCH, EPOCH_VERSION
        case EndQuorumEpoch():
            return ApiKey.END_QUORUM_EPOCH, EPOCH_VERSION
        case Fetch():
            return ApiKey.FETCH, FETCH_VERSION
        case FetchSnapshot():
            return ApiKey.FETCH_SNAPSHOT, FETCH_SNAPSHOT_VERSION
        case AddVoter():
            return ApiKey.ADD_RAFT_VOTER, ADD_VERSION
        case RemoveVoter():
            return ApiKey.REMOVE_RAFT_VOTER, REMOVE_VERSION
        case UpdateVoter():
            return ApiKey.UPDATE_RAFT_VOTER, UPDATE_VERSION
        case ProbeVoter():
            return ApiKey.API_VERSIONS, API_VERSIONS_VERSION


# ---- requests of this node -------------------------------------------------------------------------------------------


def election_request_fields(request: Vote | BeginQuorumEpoch | EndQuorumEpoch, listener_name: str) -> dict[str, Any]:
    """The schema fields of a request; `listener_name` is that of the leader's endpoint."""
    fields: dict[str, Any] = {"cluster_id": request.cluster_id}
    partition: dict[str, Any] = {"partition_index": METADATA_PARTITION}
    match request:
        case Vote():
            fields["voter_id"] = request.voter.id
            partition |= {
                "voter_directory_id": request.voter.directory_id,
                "replica_epoch": request.epoch,
                "replica_id": request.candidate.id,
                "replica_directory_id": request.candidate.directory_id,
                "last_offset_epoch": request.last_epoch,
                "last_offset": request.last_offset,
                "pre_vote": request.pre_vote,
            }
        case BeginQuorumEpoch():
            fields["voter_id"] = request.voter.id
            partition |= {
                "voter_directory_id": request.voter.directory_id,
                "leader_id": request.leader_id,
                "leader_epoch": request.epoch,
            }
        case EndQuorumEpoch():
            candidates = [
                {"candidate_id": key.id, "candidate_directory_id": key.directory_id}
                for key in request.preferred_successors
            ]
            partition |= {
                "leader_id": request.leader_id,
                "leader_epoch": request.epoch,
                "preferred_successors": [key.id for key in request.preferred_successors],
                "preferred_candidates": candidates,
            }
    fields["topics"] = [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]
    if not isinstance(request, Vote):
        endpoint = request.leader_endpoint
        fields["leader_endpoints"] = [] if endpoint is None else [{"name": listener_name, **endpoint._asdict()}]
    return fields


def fetch_request(fetch: Fetch) -> FetchRequest:
    """A sessionless fetch of the metadata partition."""
    partition = FetchPartition(
        partition=METADATA_PARTITION,
        current_leader_epoch=fetch.epoch,
        fetch_offset=fetch.fetch_offset,
        last_fetched_epoch=fetch.last_epoch,
        log_start_offset=0,
        max_bytes=fetch.max_bytes,
        replica_directory_id=fetch.replica.directory_id,
        high_watermark=UNKNOWN_HIGH_WATERMARK if fetch.high_watermark is None else fetch.high_watermark,
    )
    return FetchRequest(
        replica_id=fetch.replica.id,
        max_wait_ms=fetch.max_wait_ms,
        max_bytes=fetch.max_bytes,
        topics=[FetchTopic(name=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        cluster_id=fetch.cluster_id,
    )


def fetch_snapshot_request_fields(request: FetchSnapshot) -> dict[str, Any]:
    """The schema fields of a FetchSnapshot."""
    partition = {
        "partition": METADATA_PARTITION,
        "current_leader_epoch": request.epoch,
        "snapshot_id": _snapshot_id_fields(request.snapshot_id),
        "position": request.position,
        "replica_directory_id": request.replica.directory_id,
    }
    return {
        "cluster_id": request.cluster_id,
        "replica_id": request.replica.id,
        "max_bytes": request.max_bytes,
        "topics": [{"name": METADATA_TOPIC, "partitions": [partition]}],
    }


def _snapshot_id_fields(snapshot_id: SnapshotId) -> dict[str, Any]:
    return {"end_offset": snapshot_id.end_offset, "epoch": snapshot_id.epoch}


# ---- requests of other nodes -----------------------------------------------------------------------------------------


def parse_request(api_key: int, request: Any, listener_name: str) -> Vote | BeginQuorumEpoch | EndQuorumEpoch:
    """A decoded request as a message, with the leader's endpoint of the listener `listener_name`.

    Raises `ProtocolError` when it is not about the metadata partition.
    """
    partition = _only_partition(request.topics)
    cluster_id = request.cluster_id
    if api_key == ApiKey.VOTE:
        if min(partition.replica_epoch, partition.replica_id, partition.last_offset, partition.last_offset_epoch) < 0:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "a vote needs a candidate, its epoch and its log's end")
        return Vote(
            cluster_id=cluster_id,
            voter=_receiver(request, partition),
            candidate=ReplicaKey(partition.replica_id, partition.get("replica_directory_id") or NO_DIRECTORY),
            epoch=partition.replica_epoch,
            last_epoch=partition.last_offset_epoch,
            last_offset=partition.last_offset,
            pre_vote=partition.get("pre_vote", False),
        )
    if partition.leader_epoch < 0 or partition.leader_id < 0:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "no leader or no epoch named")
    if api_key == ApiKey.BEGIN_QUORUM_EPOCH:
        return BeginQuorumEpoch(
            cluster_id=cluster_id,
            voter=_receiver(request, partition),
            leader_id=partition.leader_id,
            epoch=partition.leader_epoch,
            leader_endpoint=_leader_endpoint(request, listener_name),
        )
    ids = partition.get("preferred_successors")
    if ids is not None:
        successors = [ReplicaKey(voter) for voter in ids]
    else:
        successors = [
            ReplicaKey(one.candidate_id, one.candidate_directory_id or NO_DIRECTORY)
            for one in partition.preferred_candidates
        ]
    return EndQuorumEpoch(
        cluster_id=cluster_id,
        leader_id=partition.leader_id,
        epoch=partition.leader_epoch,
        preferred_successors=tuple(successors),
        leader_endpoint=_leader_endpoint(request, listener_name),
    )


def _receiver(request: Any, partition: Any) -> ReplicaKey:
    return ReplicaKey(request.get("voter_id", _NO_NODE), partition.get("voter_directory_id") or NO_DIRECTORY)


def _leader_endpoint(request: Any, listener_name: str) -> VoterEndpoint | None:
    rows = request.get("leader_endpoints", ())
    return next((VoterEndpoint(one.host, one.port) for one in rows if one.name == listener_name), None)


def parse_fetch(request: FetchRequest) -> Fetch:
    """A fetch of the metadata partition. Raises `ProtocolError` when it asks for anything else."""
    topics = [topic for topic in request.topics if topic.partitions]
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "the quorum serves one partition")
    topic, partition = topics[0], topics[0].partitions[0]
    if topic.topic_id not in (None, NO_DIRECTORY, METADATA_TOPIC_ID):
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID)
    is_named = topic.topic_id == METADATA_TOPIC_ID or topic.name == METADATA_TOPIC
    if not is_named or partition.partition != METADATA_PARTITION:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    high_watermark = partition.high_watermark
    return Fetch(
        cluster_id=request.cluster_id,
        replica=ReplicaKey(request.replica_id, partition.replica_directory_id or NO_DIRECTORY),
        epoch=partition.current_leader_epoch,
        fetch_offset=partition.fetch_offset,
        last_epoch=partition.last_fetched_epoch,
        max_wait_ms=max(0, request.max_wait_ms),
        max_bytes=max(0, min(partition.max_bytes, request.max_bytes)),
        high_watermark=None if high_watermark == UNKNOWN_HIGH_WATERMARK else high_watermark,
    )


def parse_fetch_snapshot(request: Any) -> FetchSnapshot:
    """A decoded FetchSnapshot. Raises `ProtocolError` when it is not about the metadata partition."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "the quorum has one partition")
    topic, partition = request.topics[0], request.topics[0].partitions[0]
    if topic.name != METADATA_TOPIC or partition.partition != METADATA_PARTITION:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return FetchSnapshot(
        cluster_id=request.cluster_id,
        replica=ReplicaKey(request.replica_id, partition.get("replica_directory_id") or NO_DIRECTORY),
        epoch=partition.current_leader_epoch,
        snapshot_id=SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        position=partition.position,
        max_bytes=max(0, request.max_bytes),
    )


def _only_partition(topics: Any) -> Any:
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "the quorum has one partition")
    topic, partition = topics[0], topics[0].partitions[0]
    if topic.topic_name != METADATA_TOPIC or partition.partition_index != METADATA_PARTITION:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return partition


# ---- replies of this node --------------------------------------------------------------------------------------------


def election_reply_fields(reply: VoteReply | EpochReply) -> dict[str, Any]:
    """The schema fields of a reply, with the leader's endpoint where it is known."""
    if reply.error in TOP_LEVEL_ERRORS:
        return {"error_code": int(reply.error), "topics": []}
    partition: dict[str, Any] = {
        "partition_index": METADATA_PARTITION,
        "error_code": int(reply.error),
        "leader_id": _NO_NODE if reply.leader_id is None else reply.leader_id,
        "leader_epoch": reply.epoch,
    }
    if isinstance(reply, VoteReply):
        partition["vote_granted"] = reply.granted
    fields: dict[str, Any] = {
        "error_code": 0,
        "topics": [{"topic_name": METADATA_TOPIC, "partitions": [partition]}],
    }
    return fields | {"node_endpoints": _node_endpoints(reply.leader_id, reply.leader_endpoint)}


def _node_endpoints(leader_id: int | None, endpoint: VoterEndpoint | None) -> list[dict[str, Any]]:
    return [] if leader_id is None or endpoint is None else [{"node_id": leader_id, **endpoint._asdict()}]


def leader_endpoint_in(response: Any, leader_id: int | None) -> VoterEndpoint | None:
    """The leader's endpoint that a response names."""
    for node in response.get("node_endpoints", ()):
        if node.node_id == leader_id:
            return VoterEndpoint(node.host, node.port)
    return None


def fetch_response(reply: FetchReply) -> FetchResponse:
    """The answer to a metadata fetch. It always names the epoch and the leader, from which replicas learn of both."""
    if reply.error in (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.KAFKA_STORAGE_ERROR):
        return _fetch_response(reply.error, [])
    partition = FetchPartitionResponse(
        partition=METADATA_PARTITION,
        error_code=int(reply.error),
        high_watermark=reply.high_watermark,
        last_stable_offset=reply.high_watermark,
        log_start_offset=reply.log_start_offset,
        diverging_epoch=reply.diverging,
        current_leader=LeaderIdAndEpoch(_NO_NODE if reply.leader_id is None else reply.leader_id, reply.epoch),
        snapshot_id=reply.snapshot_id,
        records=reply.records,
    )
    response = _fetch_response(ErrorCode.NONE, [partition])
    if reply.leader_id is not None and reply.leader_endpoint is not None:
        response.node_endpoints = [NodeEndpoint(reply.leader_id, *reply.leader_endpoint, None)]
    return response


def fetch_snapshot_fields(request: FetchSnapshot, reply: SnapshotReply) -> dict[str, Any]:
    """The schema fields of the answer to a FetchSnapshot."""
    if reply.error in TOP_LEVEL_ERRORS:
        return {"error_code": int(reply.error), "topics": []}
    partition = {
        "index": METADATA_PARTITION,
        "error_code": int(reply.error),
        "snapshot_id": _snapshot_id_fields(request.snapshot_id),
        "current_leader": {
            "leader_id": _NO_NODE if reply.leader_id is None else reply.leader_id,
            "leader_epoch": reply.epoch,
        },
        "size": reply.size_bytes,
        "position": reply.position,
        "unaligned_records": reply.data,
    }
    return {
        "error_code": 0,
        "topics": [{"name": METADATA_TOPIC, "partitions": [partition]}],
        "node_endpoints": _node_endpoints(reply.leader_id, reply.leader_endpoint),
    }


def refused_fetch_response(request: FetchRequest, error: ErrorCode) -> FetchResponse:
    """The same error for everything that was asked for."""
    topics = [
        FetchTopicResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                FetchPartitionResponse(partition=partition.partition, error_code=int(error))
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return FetchResponse(topics=topics)


def _fetch_response(error: ErrorCode, partitions: list[FetchPartitionResponse]) -> FetchResponse:
    topics = [FetchTopicResponse(name=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=partitions)]
    return FetchResponse(error_code=int(error), topics=topics if partitions else [])


# ---- replies of others -----------------------------------------------------------------------------------------------


def parse_election_reply(request: Request, response: Any) -> Reply:
    """The reply to Vote, BeginQuorumEpoch or EndQuorumEpoch. An error for the whole request has no epoch."""
    if response.error_code:
        error = known_error(response.error_code)
        return (VoteReply if isinstance(request, Vote) else EpochReply)(error=error, leader_id=None, epoch=0)
    partition = _only_partition_of_reply(response.topics)
    error, epoch = known_error(partition.error_code), partition.leader_epoch
    leader_id = None if partition.leader_id == _NO_NODE else partition.leader_id
    endpoint = leader_endpoint_in(response, leader_id)
    if isinstance(request, Vote):
        granted = bool(partition.vote_granted) and error is ErrorCode.NONE
        return VoteReply(error=error, leader_id=leader_id, epoch=epoch, leader_endpoint=endpoint, granted=granted)
    return EpochReply(error=error, leader_id=leader_id, epoch=epoch, leader_endpoint=endpoint)


def parse_fetch_reply(response: FetchResponse) -> FetchReply:
    """The reply to a fetch of the metadata partition."""
    if response.error_code:
        return FetchReply(error=known_error(response.error_code), leader_id=None, epoch=0)
    partition = _only_partition_of_reply(response.topics)
    leader = partition.current_leader
    leader_id = None if leader is None or leader.leader_id == _NO_NODE else leader.leader_id
    at = next((node for node in response.node_endpoints if node.node_id == leader_id), None)
    return FetchReply(
        error=known_error(partition.error_code),
        leader_id=leader_id,
        epoch=0 if leader is None else leader.leader_epoch,
        leader_endpoint=None if at is None else VoterEndpoint(at.host, at.port),
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log_start_offset,
        diverging=partition.diverging_epoch,
        snapshot_id=partition.snapshot_id,
        records=partition.records_in_memory(),
    )


def parse_snapshot_reply(response: Any) -> SnapshotReply:
    """The reply to FetchSnapshot."""
    if response.error_code:
        return SnapshotReply(error=known_error(response.error_code), leader_id=None, epoch=0)
    partition = _only_partition_of_reply(response.topics)
    leader = partition.current_leader
    leader_id = None if leader.leader_id == _NO_NODE else leader.leader_id
    return SnapshotReply(
        error=known_error(partition.error_code),
        leader_id=leader_id,
        epoch=leader.leader_epoch,
        leader_endpoint=leader_endpoint_in(response, leader_id),
        size_bytes=partition.size,
        position=partition.position,
        data=partition.unaligned_records or b"",
    )


def _only_partition_of_reply(topics: Any) -> Any:
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "the reply is not about the one metadata partition")
    return topics[0].partitions[0]
