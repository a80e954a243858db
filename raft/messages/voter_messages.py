"""AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter, to and from Kafka's schemas (KIP-853)."""

from __future__ import annotations

from typing import Any

from ...wire.api_keys import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode, ProtocolError, known_error
from ..messages.control_records import parse_listeners, parse_versions
from ..messages.messages import AddVoter, ChangeReply, ProbeReply, RemoveVoter, UpdateVoter, VoterChange
from ..types import NO_DIRECTORY, ReplicaKey
from ..voters.voter_set import STATIC_VERSION, VersionRange, Voter, VoterEndpoint

KRAFT_VERSION_FEATURE = "kraft.version"
_NO_NODE = -1
CHANGE_APIS = (ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UPDATE_RAFT_VOTER)
API_VERSIONS_FIELDS = {"client_software_name": "raftwerk", "client_software_version": "1"}


def change_request_fields(request: VoterChange) -> dict[str, Any]:
    """The schema fields of a request."""
    key = request.voter if isinstance(request, RemoveVoter) else request.voter.key
    fields: dict[str, Any] = {
        "cluster_id": request.cluster_id,
        "voter_id": key.id,
        "voter_directory_id": key.directory_id,
    }
    match request:
        case AddVoter():
            fields |= {"timeout": request.timeout_ms, "ack_when_committed": request.ack_when_committed}
        case UpdateVoter():
            versions = request.voter.versions
            feature = {"min_supported_version": versions.lowest, "max_supported_version": versions.highest}
            fields |= {"current_leader_epoch": request.epoch, "k_raft_version_feature": feature}
        case RemoveVoter():
            return fields
    return fields | {"listeners": [listener._asdict() for listener in request.voter.listeners]}


def parse_change(api_key: int, request: Any) -> VoterChange:
    """A decoded request as a message. Raises `ProtocolError` when it names no replica."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id or NO_DIRECTORY)
    if key.id < 0 or key.directory_id == NO_DIRECTORY:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "a voter is named by its node id and its directory id")
    if api_key == ApiKey.REMOVE_RAFT_VOTER:
        return RemoveVoter(cluster_id=request.cluster_id, voter=key)
    listeners = parse_listeners(request.listeners)
    if len({listener.name for listener in listeners}) != len(listeners):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "two endpoints have the same listener name")
    if api_key == ApiKey.ADD_RAFT_VOTER:
        return AddVoter(
            cluster_id=request.cluster_id,
            voter=Voter(key, listeners),
            timeout_ms=max(0, request.timeout),
            ack_when_committed=request.get("ack_when_committed", True),
        )
    voter = Voter(key, listeners, parse_versions(request.k_raft_version_feature))
    return UpdateVoter(cluster_id=request.cluster_id, epoch=request.current_leader_epoch, voter=voter)


def change_reply_fields(api_key: int, reply: ChangeReply) -> dict[str, Any]:
    """The schema fields of a reply."""
    if api_key != ApiKey.UPDATE_RAFT_VOTER:
        return {"error_code": int(reply.error), "error_message": reply.message}
    fields: dict[str, Any] = {"error_code": int(reply.error)}
    endpoint = reply.leader_endpoint or VoterEndpoint("", 0)
    leader_id = _NO_NODE if reply.leader_id is None else reply.leader_id
    leader = {"leader_id": leader_id, "leader_epoch": reply.epoch, **endpoint._asdict()}
    return fields | {"current_leader": leader}


def parse_change_reply(response: Any) -> ChangeReply:
    """The reply to any of the three; the leader in it is left out, as other replies name it too."""
    message = response.get("error_message")
    return ChangeReply(error=known_error(response.error_code), leader_id=None, epoch=0, message=message)


def parse_probe_reply(response: Struct) -> ProbeReply:
    """The range of `kraft.version` in a controller's ApiVersions; without one it supports static voters only."""
    for feature in response.get("supported_features", ()):
        if feature.name == KRAFT_VERSION_FEATURE:
            return ProbeReply(versions=VersionRange(feature.min_version, feature.max_version))
    return ProbeReply(versions=VersionRange(STATIC_VERSION, STATIC_VERSION))
