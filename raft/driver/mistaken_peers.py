"""Says, once for each, which controllers answer and are not the peers for which this node takes them."""

from __future__ import annotations

import logging

from ...log.state.checkpoints import encode_uuid
from ...wire.errors import ErrorCode
from ..messages.messages import BeginQuorumEpoch, Outgoing, ProbeReply, Reply, Vote
from ..types import ReplicaKey
from ..voters.voter_set import VoterEndpoint

_logger = logging.getLogger("raftwerk.raft")


class MistakenPeers:
    """The controllers of other clusters, and the voters whose node is back with another directory; each is logged."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._told: dict[VoterEndpoint | ReplicaKey, None] = {}

    def look(self, sent: Outgoing, reply: Reply) -> None:
        """See what a reply says of its sender."""
        if isinstance(reply, ProbeReply):
            return
        if reply.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._tell_other_cluster(sent.endpoint)
        elif reply.error is ErrorCode.INVALID_VOTER_KEY and isinstance(sent.request, Vote | BeginQuorumEpoch):
            self._tell_other_directory(sent.endpoint, sent.request.voter)

    def _tell_other_cluster(self, endpoint: VoterEndpoint) -> None:
        """This node never joins the quorum of that controller."""
        if self._is_new(endpoint):
            _logger.error(
                "the controller at %s:%d belongs to another cluster than this node, whose cluster id is %s: one of the "
                "two was formatted with a wrong id (format it again, in empty directories), or controller.quorum.* is "
                "wrong",
                *(endpoint.host, endpoint.port, self._cluster_id),
            )

    def _tell_other_directory(self, endpoint: VoterEndpoint, voter: ReplicaKey) -> None:
        """The voter is a node together with a directory (KIP-853), so it gives no vote any more."""
        if self._is_new(voter):
            _logger.warning(
                "voter %d with the directory id %s does not vote any more: the controller at %s:%d is back with "
                "another metadata directory; while a majority of the voters runs it can be made a voter again "
                "(raftwerk quorum remove-controller and add-controller), without one put its former directory back",
                *(voter.id, encode_uuid(voter.directory_id), endpoint.host, endpoint.port),
            )

    def _is_new(self, what: VoterEndpoint | ReplicaKey) -> bool:
        if what in self._told:
            return False
        self._told[what] = None
        return True
