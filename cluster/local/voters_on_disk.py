"""Whether the voters of a local cluster are in its metadata log, read while it does not run."""

from __future__ import annotations

import os

from ...raft.messages.control_records import voter_records
from ...raft.types import METADATA_TOPIC
from ...raft.voters.voter_set import DYNAMIC_VERSION, KRaftVersion
from ...wire.errors import ProtocolError, WireFormatError
from .layout import ClusterPlan


def has_dynamic_voters(plan: ClusterPlan) -> bool:
    """Whether `kraft.version` is 1 or higher, by the metadata log of one of its nodes."""
    return any(_finalizes_dynamic_voters(os.path.join(node.data_dir, f"{METADATA_TOPIC}-0")) for node in plan.nodes)


def _finalizes_dynamic_voters(directory: str) -> bool:
    names = os.listdir(directory) if os.path.isdir(directory) else []
    for path in (os.path.join(directory, name) for name in names if name.endswith((".log", ".checkpoint"))):
        try:
            with open(path, "rb") as file:
                records = [record for _, record in voter_records(file.read(), allow_partial_tail=True)]
        except (OSError, ProtocolError, WireFormatError):
            continue  # the node itself says what is wrong with the file
        if any(isinstance(one, KRaftVersion) and one.level >= DYNAMIC_VERSION for one in records):
            return True
    return False
