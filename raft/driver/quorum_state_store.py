"""Where a vote is made durable: the `quorum-state` file, in Kafka's JSON (data_version 1; 0 is read too).

The epoch and the vote are on disk before a vote is answered. A file that cannot be read is an error, because a node
that forgets its vote could vote twice in an epoch.
"""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID

from ...runtime.ports import Disk
from ..types import EPOCH_MAX, NO_DIRECTORY, ElectionState, ReplicaKey

QUORUM_STATE_FILE = "quorum-state"
_NO_NODE = -1
_ID_MAX = 2**31 - 1


class QuorumStateError(Exception):
    """The quorum-state file is damaged or of an unknown version."""


def format_quorum_state(state: ElectionState) -> bytes:
    """The contents of the file, as Kafka's `FileQuorumStateStore` writes them."""
    voted = state.voted or ReplicaKey(_NO_NODE)
    fields = {
        "leaderId": _NO_NODE if state.leader_id is None else state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": voted.id,
        "votedDirectoryId": base64.urlsafe_b64encode(voted.directory_id.bytes).rstrip(b"=").decode(),
        "data_version": 1,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def parse_quorum_state(data: bytes) -> ElectionState:
    """The state in the file's contents. Raises `QuorumStateError`."""
    try:
        fields = json.loads(data)
        version = fields["data_version"]
        if version not in (0, 1):
            raise QuorumStateError(f"data_version {version!r} is not known; 0 and 1 are")
        leader_id, voted_id, epoch = int(fields["leaderId"]), int(fields["votedId"]), int(fields["leaderEpoch"])
        _check_range("leaderEpoch", epoch, 0, EPOCH_MAX)
        _check_range("leaderId", leader_id, _NO_NODE, _ID_MAX)
        _check_range("votedId", voted_id, _NO_NODE, _ID_MAX)
        return ElectionState(
            epoch=epoch,
            leader_id=None if leader_id == _NO_NODE else leader_id,
            voted=None if voted_id == _NO_NODE else ReplicaKey(voted_id, _voted_directory(fields)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise QuorumStateError(f"not a quorum-state file: {error!r}") from error


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise QuorumStateError(
            f"{name} is {value}, it must be from {low} to {high}. Treat this controller as one that has lost its disk: "
            "remove it from the voters, format an empty directory, add it again. If the files of all controllers are "
            "so, stop all of them, write the same leaderEpoch into each file, higher than every real epoch in their "
            "logs, with leaderId and votedId -1, and start them again"
        )


def _voted_directory(fields: dict[str, Any]) -> UUID:
    text = fields.get("votedDirectoryId")
    return NO_DIRECTORY if text is None else UUID(bytes=base64.urlsafe_b64decode(text + "=="))


class QuorumStateStore:
    """Reads and durably replaces `quorum-state` in one directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{QUORUM_STATE_FILE}"

    def read(self) -> ElectionState:
        """The last state that was written; epoch 0 on a new node. Raises `QuorumStateError` and `OSError`."""
        if not self._disk.exists(self.path):
            return ElectionState()
        try:
            return parse_quorum_state(self._disk.read_bytes(self.path))
        except QuorumStateError as error:
            raise QuorumStateError(f"{self.path}: {error}") from error

    def write(self, state: ElectionState) -> None:
        """Write `state`; it survives a loss of power once this returns. Raises `OSError`."""
        self._disk.write_atomic(self.path, format_quorum_state(state))
