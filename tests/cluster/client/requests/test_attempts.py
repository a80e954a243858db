"""Changes are made although the answer of a broker is lost, after which another one is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from raftwerk.cluster.client.access.token_client import TokenClient, TokenRow
from raftwerk.cluster.client.admin_client import AdminClient, NewTopic
from raftwerk.cluster.client.client_errors import ClientError, RefusedError, UnreachableError
from raftwerk.cluster.client.cluster_client import ClusterClient, WaitsFor
from raftwerk.cluster.client.group_client import GroupClient
from raftwerk.cluster.client.quorum_client import QuorumClient
from raftwerk.cluster.client.reassignment import Move, reassign
from raftwerk.cluster.client.requests.attempts import Attempts
from raftwerk.cluster.client.requests.throttling import Throttling
from raftwerk.raft.types import ReplicaKey
from raftwerk.raft.voters.voter_set import Voter
from raftwerk.security.authorizer.acl_binding import AclBinding, AclBindingFilter
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import ConnectionLostError
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode

LOST = -2
"""A broker got the request and closed the connection."""
USED_UP = ErrorCode.THROTTLING_QUOTA_EXCEEDED
EXISTS, UNKNOWN = ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Brokers:
    """A `ClusterClient` of brokers that answer with these codes, one after the other."""

    timeout_s = 10.0

    def __init__(self, *codes: int, is_silent: bool = False, throttle_s: float = 60.0) -> None:
        self.codes = list(codes)
        self.throttle_s = throttle_s
        self.throttling = Throttling(is_silent=is_silent)

    async def request(
        self, _api: ApiKey, _version: int, _fields: Mapping[str, Any], on_no_answer: Callable[[], None]
    ) -> Any:
        while self.codes and self.codes[0] == LOST:
            del self.codes[0]
            on_no_answer()
        if not self.codes:
            raise UnreachableError({("b", 9092): "closes the connection"})
        row = SimpleNamespace(error_code=self.codes.pop(0), error_message=None)
        if row.error_code == USED_UP:
            self.throttling.on_throttled("b:9092", asyncio.get_running_loop().time() + self.throttle_s)
        return SimpleNamespace(topics=[row], responses=[row])


def create(codes: Sequence[int], attempts: Attempts | None = None, *, validate_only: bool = False) -> None:
    admin = AdminClient(cast(ClusterClient, Brokers(*codes)))
    asyncio.run(admin.create_topic(NewTopic("t"), wait=False, attempts=attempts, validate_only=validate_only))


def delete(codes: Sequence[int], attempts: Attempts | None = None) -> None:
    asyncio.run(AdminClient(cast(ClusterClient, Brokers(*codes))).delete_topic("t", wait=False, attempts=attempts))


@pytest.mark.parametrize(
    "before", [[LOST], [ErrorCode.REQUEST_TIMED_OUT], [LOST, ErrorCode.NOT_CONTROLLER], [LOST, LOST]]
)
def test_what_an_attempt_without_an_answer_may_have_done_is_no_error_of_the_next(before: list[int]) -> None:
    create([*before, EXISTS])
    delete([*before, UNKNOWN])


@pytest.mark.parametrize("before", [[], [ErrorCode.NOT_CONTROLLER]])
def test_what_was_so_before_is_refused(before: list[int]) -> None:
    for change, code in ((create, EXISTS), (delete, UNKNOWN)):
        with pytest.raises(RefusedError) as refused:
            change([*before, code])
        assert refused.value.code == code


def test_other_errors_are_told_after_a_lost_answer() -> None:
    for change, code in ((create, UNKNOWN), (delete, EXISTS)):
        with pytest.raises(RefusedError) as refused:
            change([LOST, code])
        assert refused.value.code == code


def test_a_later_call_knows_of_the_attempts_before() -> None:
    for change, code in ((create, EXISTS), (delete, UNKNOWN)):
        for first in ([LOST], [ErrorCode.NONE]):
            attempts = Attempts()
            if first == [LOST]:
                with pytest.raises(UnreachableError):
                    change(first, attempts)
            else:
                change(first, attempts)
            change([code], attempts)


def test_a_question_whether_a_topic_can_be_created_has_created_none() -> None:
    with pytest.raises(RefusedError):
        create([LOST, EXISTS], validate_only=True)


DIRECTORY = UUID(int=4)
TOKEN = TokenRow("id", b"h", "User:a", "User:a", (), 1, 2, 3)
ACL = AclBinding(2, "t", 3, "User:alice", "*", 3, 3)


class DyingBroker(ClusterClient):
    """The first broker passes a change on to the controller and dies before its answer; then the second is asked.

    `code` is what that one answers. Questions are answered at once.
    """

    def __init__(self, code: int = 0, *, partitions: int = 2, is_lost: bool = True) -> None:
        super().__init__("a:1,b:2", probe_timeout_s=None)
        self.code = code
        self.partitions = partitions
        self.is_lost = is_lost
        self.changes: list[ApiKey] = []

    async def _request_to(
        self,
        host: str,
        port: int,
        api: ApiKey,
        version: int,
        fields: Mapping[str, Any],
        on_no_answer: Callable[[], None] | None = None,
    ) -> Struct:
        try:
            return self._answer(api)
        except ConnectionLostError:
            if on_no_answer is not None:
                on_no_answer()
            raise

    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: WaitsFor | None = None
    ) -> Struct:
        return self._answer(api)

    def _answer(self, api: ApiKey) -> Struct:
        if api in ANSWERS:
            return cast(Struct, ANSWERS[api](self))
        self.changes.append(api)
        if self.is_lost and len(self.changes) == 1:
            raise ConnectionLostError("it died")
        row = {"error_code": self.code, "error_message": "it is so already", "partition_index": 0, "matching_acls": []}
        rows = [Struct(row)]
        topics = [Struct({"name": "t", "partitions": rows})]
        answer: dict[str, Any] = {"results": rows, "responses": topics, "filter_results": rows, "topics": []}
        answer |= row | {"expiry_timestamp": 5}
        if api is ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            answer["error_code"] = 0
        return Struct(answer)


def _metadata(brokers: DyingBroker) -> object:
    row = {"leader_id": 1, "leader_epoch": 0, "replica_nodes": [1], "isr_nodes": [1]}
    rows = [SimpleNamespace(partition_index=one, **row) for one in range(brokers.partitions)]
    topic = SimpleNamespace(name="t", topic_id=None, error_code=0, is_internal=False, partitions=rows)
    broker = SimpleNamespace(node_id=7, host="b", port=2, rack=None)
    return SimpleNamespace(brokers=[broker], cluster_id="c", controller_id=1, topics=[topic])


def _quorum(_: DyingBroker) -> object:
    voter = {"replica_id": 4, "replica_directory_id": DIRECTORY, "log_end_offset": 1}
    times = {"last_fetch_timestamp": 1, "last_caught_up_timestamp": 1}
    head = {"error_code": 0, "leader_id": 4, "leader_epoch": 1, "high_watermark": 1}
    row = Struct(head | {"current_voters": [Struct(voter | times)], "observers": []})
    return Struct({"error_code": 0, "topics": [Struct({"partitions": [row]})], "nodes": []})


ANSWERS: dict[ApiKey, Callable[[DyingBroker], object]] = {
    ApiKey.METADATA: _metadata,
    ApiKey.DESCRIBE_QUORUM: _quorum,
    ApiKey.FIND_COORDINATOR: lambda _: Struct({"coordinators": [Struct({"error_code": 0, "node_id": 7})]}),
}

Change = Callable[[ClusterClient], Coroutine[Any, Any, object]]
CHANGES: dict[str, tuple[Change, ErrorCode]] = {
    "partitions are added": (
        lambda client: AdminClient(client).create_partitions("t", 2),
        ErrorCode.INVALID_PARTITIONS,
    ),
    "a user is removed": (
        lambda client: AdminClient(client).remove_scram_password("alice", ["SCRAM-SHA-512"]),
        ErrorCode.RESOURCE_NOT_FOUND,
    ),
    "a broker is unregistered": (
        lambda client: AdminClient(client).unregister_broker(9),
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    ),
    "a token is ended": (lambda client: TokenClient(client).end(TOKEN), ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
    "a group is deleted": (lambda client: GroupClient(client).delete("g"), ErrorCode.GROUP_ID_NOT_FOUND),
    "a move is cancelled": (
        lambda client: reassign(client, [Move("t", 0, None)]),
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ),
    "a voter is added": (
        lambda client: QuorumClient(client).add_voter(Voter(ReplicaKey(4, DIRECTORY), ())),
        ErrorCode.DUPLICATE_VOTER,
    ),
    "a voter is removed": (
        lambda client: QuorumClient(client).remove_voter(5, DIRECTORY),
        ErrorCode.VOTER_NOT_FOUND,
    ),
}


@pytest.mark.parametrize("what", list(CHANGES))
def test_what_the_broker_without_an_answer_has_done_is_no_error(what: str) -> None:
    change, code = CHANGES[what]
    brokers = DyingBroker(code)
    asyncio.run(change(brokers))
    assert len(brokers.changes) == 2


@pytest.mark.parametrize("what", list(CHANGES))
def test_what_was_so_before_is_refused_as_well(what: str) -> None:
    change, code = CHANGES[what]
    with pytest.raises(RefusedError) as refused:
        asyncio.run(change(DyingBroker(code, is_lost=False)))
    assert refused.value.code == code


@pytest.mark.parametrize("what", list(CHANGES))
def test_another_error_is_told_after_a_lost_answer(what: str) -> None:
    with pytest.raises(RefusedError) as refused:
        asyncio.run(CHANGES[what][0](DyingBroker(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
    assert refused.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_topic_that_has_more_partitions_than_wanted_had_them_before() -> None:
    with pytest.raises(RefusedError) as refused:
        asyncio.run(AdminClient(DyingBroker(ErrorCode.INVALID_PARTITIONS, partitions=3)).create_partitions("t", 2))
    assert refused.value.code == ErrorCode.INVALID_PARTITIONS


def test_a_voter_with_another_directory_was_there_before() -> None:
    other = Voter(ReplicaKey(4, UUID(int=5)), ())
    with pytest.raises(RefusedError) as refused:
        asyncio.run(QuorumClient(DyingBroker(ErrorCode.DUPLICATE_VOTER)).add_voter(other))
    assert refused.value.code == ErrorCode.DUPLICATE_VOTER


def test_acls_that_may_have_been_removed_are_told() -> None:
    wanted = AclBindingFilter(*ACL)
    with pytest.raises(ClientError, match="no such ACLs are left; a broker that gave no answer may have removed some"):
        asyncio.run(AdminClient(DyingBroker()).delete_acls([wanted]))
    assert asyncio.run(AdminClient(DyingBroker(is_lost=False)).delete_acls([wanted])) == []


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT])
def test_one_token_is_made_at_most(code: ErrorCode) -> None:
    """A second request would make a second token, and nobody would know of the first."""
    brokers = DyingBroker(code, is_lost=not code)
    with pytest.raises(ClientError, match="may have been made all the same: raftwerk tokens list shows it"):
        asyncio.run(TokenClient(brokers).create(None, [], -1))
    assert brokers.changes == [ApiKey.CREATE_DELEGATION_TOKEN]


def test_a_change_beyond_a_quota_is_asked_for_again_unless_nobody_is_told() -> None:
    create([USED_UP, USED_UP, 0])
    with pytest.raises(RefusedError) as raised:
        silent = Brokers(USED_UP, 0, is_silent=True)
        asyncio.run(AdminClient(cast(ClusterClient, silent)).create_topic(NewTopic("t"), wait=False))
    assert raised.value.code == USED_UP


def test_a_change_beyond_a_quota_is_asked_for_again_also_where_the_throttle_time_is_over_at_once() -> None:
    """A broker may tell of a millisecond, which is over before the answer is looked at."""
    brokers = Brokers(USED_UP, USED_UP, 0, throttle_s=0.0)
    asyncio.run(AdminClient(cast(ClusterClient, brokers)).create_topic(NewTopic("t"), wait=False))
    assert brokers.codes == []
