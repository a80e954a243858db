"""The invariant "the voters of a node are those of its log": what is cut off the log has made nobody a voter.

A node counts a change of the voters as soon as the record is in its log, so it must forget it with the record.
"""

from __future__ import annotations

from .....raft.messages.control_records import voter_records
from .....raft.replication.partition_raft_log import PartitionRaftLog
from .....raft.voters.voter_set import VoterHistory
from .....wire.records import iter_headers
from ..invariant_broken import InvariantBroken

_READ_BYTES = 1 << 20


def check_voters(log: PartitionRaftLog, node_id: int) -> None:
    """Compare the voters that the node knows with the records of its log and snapshot. Raises `InvariantBroken`."""
    expected = VoterHistory()
    if log.start in log.snapshots.ids:
        expected.start_from(log.start.end_offset, log.snapshots.controls(log.start))
    offset = log.start.end_offset
    while offset < log.end_offset:
        data = log.read(offset, _READ_BYTES)
        for at, record in voter_records(data):
            expected.add(at, record)
        offset = max(header.next_offset for _, header in iter_headers(data))
    known = log.voters
    if (known.last, known.version) != (expected.last, expected.version):
        detail = f"node {node_id} counts {known.last} (version {known.version}), its log says {expected.last}"
        raise InvariantBroken("the voters of a node are those of its log", f"{detail} (version {expected.version})")
