"""Describes the metadata quorum, and adds and removes voters (DescribeQuorum, AddRaftVoter, RemoveRaftVoter)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ...raft.voters.voter_set import Voter
from ...wire.api_keys import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode
from .admin_client import BROKER, AdminClient
from .client_errors import ClientError, RefusedError
from .cluster_client import NO_ANSWER, ClusterClient, no_answer_reason

_LEADER_VERSION, _DESCRIBE_VERSION, _ADD_VERSION, _REMOVE_VERSION = 1, 2, 1, 0
_TOPICS = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
_TEMPORARY = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER)
_AUTO_JOIN_KEY = "controller.quorum.auto.join.enable"
_PAUSE_S = 0.1
_NO_DIRECTORY = UUID(int=0)


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or observer. Times are milliseconds of the wall clock, -1 when unknown."""

    node_id: int
    directory_id: UUID
    is_voter: bool
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The answer to DescribeQuorum."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    replicas: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, tuple[str, int]]

    @property
    def voters(self) -> list[QuorumReplica]:
        """The replicas that vote."""
        return [replica for replica in self.replicas if replica.is_voter]


class QuorumClient:
    """Asks the quorum through brokers; with `at_controllers` it asks the controllers, and finds the leader among them.

    Every method raises `ClientError` with the reason.
    """

    def __init__(self, client: ClusterClient, *, at_controllers: bool = False) -> None:
        self._client = client
        self._at_controllers = at_controllers

    async def describe(self) -> QuorumView:
        """The quorum, as its leader describes it."""
        answer = await self._ask(ApiKey.DESCRIBE_QUORUM, _DESCRIBE_VERSION, {"topics": _TOPICS})
        _raise_if_refused(answer, "the quorum")
        row = answer.topics[0].partitions[0]
        replicas = [
            QuorumReplica(
                one.replica_id,
                one.replica_directory_id or _NO_DIRECTORY,
                is_voter,
                one.log_end_offset,
                one.last_fetch_timestamp,
                one.last_caught_up_timestamp,
            )
            for is_voter, found in ((True, row.current_voters), (False, row.observers))
            for one in found
        ]
        return QuorumView(row.leader_id, row.leader_epoch, row.high_watermark, tuple(replicas), _endpoints(answer))

    async def leader_id(self) -> int | None:
        """The node id of the active controller; None while there is none. It asks once, without retries."""
        answer = await self._client.request(ApiKey.DESCRIBE_QUORUM, _LEADER_VERSION, {"topics": _TOPICS})
        if answer.error_code:
            raise RefusedError(answer.error_code, "the quorum")
        row = answer.topics[0].partitions[0]
        return row.leader_id if not row.error_code and row.leader_id >= 0 else None

    async def add_voter(self, voter: Voter, cluster_id: str | None = None) -> None:
        """Make a controller that follows the quorum a voter; returns when the change is committed."""
        fields = {
            "cluster_id": cluster_id,
            "timeout": int(self._client.timeout_s * 1000),
            "voter_id": voter.key.id,
            "voter_directory_id": voter.key.directory_id,
            "listeners": [listener._asdict() for listener in voter.listeners],
            "ack_when_committed": True,
        }
        answer = await self._ask(ApiKey.ADD_RAFT_VOTER, _ADD_VERSION, fields)
        _raise_if_refused(answer, f"controller {voter.key.id}")

    async def remove_voter(self, node_id: int, directory_id: UUID, cluster_id: str | None = None) -> None:
        """Remove a voter from the quorum; returns when the change is committed."""
        fields = {"cluster_id": cluster_id, "voter_id": node_id, "voter_directory_id": directory_id}
        answer = await self._ask(ApiKey.REMOVE_RAFT_VOTER, _REMOVE_VERSION, fields)
        _raise_if_refused(answer, f"controller {node_id}")

    async def joins_by_itself(self, node_id: int) -> bool:
        """Whether a controller would join again at once if it were removed: it runs with `auto.join.enable`.

        Only a controller that is a broker, too, can be asked. False when it does not answer.
        """
        if self._at_controllers:
            return False
        try:
            settings = await AdminClient(self._client).describe_configs(BROKER, str(node_id), everything=True)
        except (ClientError, *NO_ANSWER):
            return False
        return any(one.name == _AUTO_JOIN_KEY and one.value == "true" for one in settings)

    # -- requests

    async def _ask(self, api: ApiKey, version: int, fields: Mapping[str, Any]) -> Struct:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._client.timeout_s
        while True:
            try:
                if self._at_controllers:
                    answer = await self._ask_leader(api, version, fields)
                else:
                    answer = await self._client.request(api, version, fields)
            except NO_ANSWER as error:
                reason: Exception = ClientError(f"the leader of the quorum {no_answer_reason(error)}")
            else:
                code = _code_of(answer)
                if code not in _TEMPORARY:
                    return answer
                reason = RefusedError(code, "the quorum")
            if loop.time() > deadline:
                raise reason
            await asyncio.sleep(_PAUSE_S)

    async def _ask_leader(self, api: ApiKey, version: int, fields: Mapping[str, Any]) -> Struct:
        answer = await self._client.request(ApiKey.DESCRIBE_QUORUM, _DESCRIBE_VERSION, {"topics": _TOPICS})
        # A controller that is stopping, or whose disk has failed, knows no topics.
        leader_id: int = answer.topics[0].partitions[0].leader_id if answer.topics else -1
        endpoint = _endpoints(answer).get(leader_id)
        if endpoint is None:
            return answer
        return await self._client.request_at(endpoint, api, version, fields)


def _endpoints(answer: Struct) -> dict[int, tuple[str, int]]:
    return {node.node_id: (node.listeners[0].host, node.listeners[0].port) for node in answer.nodes if node.listeners}


def _code_of(answer: Struct) -> int:
    topics: Sequence[Any] = answer.get("topics", ())
    code: int = answer.error_code or (topics[0].partitions[0].error_code if topics else 0)
    return code


def _raise_if_refused(answer: Struct, what: str) -> None:
    if answer.error_code:
        raise RefusedError(answer.error_code, what, answer.error_message)
