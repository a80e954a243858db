"""The quorum's control records in Kafka's schemas: LeaderChange, KRaftVersion, Voters (KIP-595, KIP-853)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...runtime.ports import Buffer
from ...wire.codec import decode_data, encode_data
from ...wire.errors import ErrorCode, ProtocolError, WireFormatError
from ...wire.records import (
    ControlRecordType,
    NewRecord,
    control_record_type,
    encode_control_record,
    iter_headers,
    iter_records,
)
from ..types import NO_DIRECTORY, ReplicaKey
from ..voters.voter_set import ControlRecord, KRaftVersion, LeaderChange, VersionRange, Voter, VoterListener, VoterSet

_VERSION = 0


def encode_control(record: ControlRecord, timestamp_ms: int) -> NewRecord:
    """The control record in Kafka's format."""
    match record:
        case LeaderChange():
            return encode_control_record(ControlRecordType.LEADER_CHANGE, _leader_change(record), timestamp_ms)
        case KRaftVersion():
            message = encode_data(
                "k_raft_version_record", _VERSION, {"version": _VERSION, "k_raft_version": record.level}
            )
            return encode_control_record(ControlRecordType.KRAFT_VERSION, message, timestamp_ms)
        case VoterSet():
            rows = [_voter_fields(voter) for voter in record.voters]
            message = encode_data("voters_record", _VERSION, {"version": _VERSION, "voters": rows})
            return encode_control_record(ControlRecordType.KRAFT_VOTERS, message, timestamp_ms)


def _leader_change(record: LeaderChange) -> bytes:
    # Version 1 would name directories, but Apache Kafka 4.2 writes, and its dump tool reads, only version 0.
    fields = {
        "version": _VERSION,
        "leader_id": record.leader_id,
        "voters": [{"voter_id": key.id} for key in record.voters],
        "granting_voters": [{"voter_id": key.id} for key in record.granting],
    }
    return encode_data("leader_change_message", _VERSION, fields)


def _voter_fields(voter: Voter) -> dict[str, Any]:
    return {
        "voter_id": voter.key.id,
        "voter_directory_id": voter.key.directory_id,
        "endpoints": [listener._asdict() for listener in voter.listeners],
        "k_raft_version_feature": {
            "min_supported_version": voter.versions.lowest,
            "max_supported_version": voter.versions.highest,
        },
    }


def parse_listeners(rows: Any) -> tuple[VoterListener, ...]:
    """The listeners in a VotersRecord, AddRaftVoter or UpdateRaftVoter."""
    return tuple(VoterListener(one.name, one.host, one.port) for one in rows)


def parse_versions(feature: Any) -> VersionRange:
    """The range in a KRaftVersionFeature."""
    return VersionRange(feature.min_supported_version, feature.max_supported_version)


def decode_control(key: bytes | None, value: bytes) -> ControlRecord | None:
    """A VotersRecord or KRaftVersionRecord; None for other types. Raises `ProtocolError` when it is damaged."""
    try:
        return _decode_control(control_record_type(key), value)
    except WireFormatError as error:
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _decode_control(record_type: int, value: bytes) -> ControlRecord | None:
    if record_type == ControlRecordType.KRAFT_VERSION:
        return KRaftVersion(decode_data("k_raft_version_record", _VERSION, value).k_raft_version)
    if record_type != ControlRecordType.KRAFT_VOTERS:
        return None
    return VoterSet.of(
        Voter(
            ReplicaKey(one.voter_id, one.voter_directory_id or NO_DIRECTORY),
            parse_listeners(one.endpoints),
            parse_versions(one.k_raft_version_feature),
        )
        for one in decode_data("voters_record", _VERSION, value).voters
    )


def voter_records(data: Buffer, *, allow_partial_tail: bool = False) -> Iterator[tuple[int, ControlRecord]]:
    """The VotersRecords and KRaftVersionRecords in some batches, with their offsets.

    Raises `ProtocolError` when a batch is damaged. `allow_partial_tail` skips an incomplete last batch.
    """
    view = memoryview(data)
    for position, header in iter_headers(view, allow_partial_tail=allow_partial_tail):
        if header.is_control:
            for record in iter_records(view[position : position + header.size_bytes]):
                found = decode_control(record.key, record.value or b"")
                if found is not None:
                    yield record.offset, found
