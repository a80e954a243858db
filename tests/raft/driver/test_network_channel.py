"""How requests to another controller share its connections."""

from __future__ import annotations

import asyncio
import gc
from typing import Any
from uuid import UUID

import pytest

from raftwerk.raft.driver import network_channel
from raftwerk.raft.driver.network_channel import NetworkChannel, connector
from raftwerk.raft.messages.messages import (
    AddVoter,
    BeginQuorumEpoch,
    ChangeReply,
    EpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Outgoing,
    ProbeReply,
    ProbeVoter,
    Reply,
    Request,
    SnapshotReply,
    Vote,
    VoteReply,
)
from raftwerk.raft.messages.voter_messages import change_reply_fields, parse_change
from raftwerk.raft.messages.wire_messages import (
    election_reply_fields,
    fetch_response,
    fetch_snapshot_fields,
    parse_fetch,
    parse_fetch_snapshot,
    parse_request,
)
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.effects import FailureKind
from raftwerk.raft.types import ReplicaKey
from raftwerk.raft.voters.voter_set import VersionRange, Voter, VoterEndpoint, VoterListener
from raftwerk.runtime.files.file_slice import in_memory
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import ConnectionLostError, RequestTimedOutError
from raftwerk.wire.codec import decode_request, encode_response
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.fetch import decode_fetch_request, encode_fetch_response
from raftwerk.wire.types import SnapshotId

AT = VoterEndpoint("n2", 9093)
PROBE = Outgoing(id=1, to=2, endpoint=AT, request=ProbeVoter(voter=ReplicaKey(2, UUID(int=2))))


class Attempts:
    """Attempts to connect, which end when a test says so."""

    def __init__(self) -> None:
        self.made: list[asyncio.Future[Any]] = []
        self.channel = NetworkChannel(RaftConfig(node_id=1, cluster_id="c", voters={2: AT}), self.connect)

    async def connect(self, _host: str, _port: int) -> Any:
        self.made.append(asyncio.get_running_loop().create_future())
        return await self.made[-1]

    def exchange(self) -> asyncio.Task[Any]:
        return asyncio.create_task(self.channel.exchange(PROBE))


def test_requests_to_a_host_that_does_not_answer_share_one_attempt_to_connect_and_end_with_it() -> None:
    """One attempt after the other would make each request wait for the time-outs of all before it."""

    async def run() -> None:
        attempts = Attempts()
        requests = [attempts.exchange() for _ in range(3)]
        await asyncio.sleep(0)
        (attempt,) = attempts.made
        attempt.set_exception(TimeoutError())
        assert await asyncio.wait_for(asyncio.gather(*requests), 10) == [FailureKind.TIMEOUT] * 3
        later = attempts.exchange()
        await asyncio.sleep(0)
        attempts.made[1].set_exception(ConnectionRefusedError())
        assert await later is FailureKind.REFUSED

    asyncio.run(run())


def test_a_request_that_is_given_up_while_it_connects_takes_those_that_share_its_attempt_with_it() -> None:
    async def run() -> None:
        attempts = Attempts()
        requests = [attempts.exchange() for _ in range(2)]
        await asyncio.sleep(0)
        requests[0].cancel()
        assert await asyncio.wait_for(requests[1], 10) is FailureKind.LOST
        assert requests[0].cancelled()

    asyncio.run(run())


def test_an_attempt_that_failed_for_one_request_alone_is_no_error_that_nobody_saw() -> None:
    async def run() -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
        attempts = Attempts()
        request = attempts.exchange()
        await asyncio.sleep(0)
        attempts.made[0].set_exception(ConnectionRefusedError())
        assert await request is FailureKind.REFUSED
        del request
        attempts.made.clear()
        gc.collect()
        assert reported == []

    asyncio.run(run())


class Peer:
    """A controller at the other end of connections in memory: notes each request, and answers it."""

    def __init__(self) -> None:
        self.connections: list[PeerConnection] = []
        self.error: BaseException | None = None
        self.answer: bytes | None = None
        """Instead of the right one."""
        self.may_connect: asyncio.Future[None] | None = None
        self.channel = NetworkChannel(RaftConfig(node_id=1, cluster_id="c", voters={2: AT}), self.connect)

    async def connect(self, host: str, port: int) -> Any:
        assert (host, port) == AT
        if self.may_connect is not None:
            await self.may_connect
        self.connections.append(PeerConnection(self))
        return self.connections[-1]

    async def ask(self, request: Request) -> object:
        return await self.channel.exchange(Outgoing(id=1, to=2, endpoint=AT, request=request))


class PeerConnection:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.is_closed = False
        self.received: list[object] = []

    def close(self) -> None:
        self.is_closed = True

    async def send_raw(self, api_key: ApiKey, version: int, body: list[Any], *, timeout_s: float) -> memoryview:
        assert timeout_s == 2.0, "the default of controller.quorum.request.timeout.ms"
        if self._peer.error is not None:
            raise self._peer.error
        request, answer = served(api_key, version, b"".join(body))
        self.received.append(request)
        return memoryview(self._peer.answer or answer)


FETCHED = FetchReply(error=ErrorCode.NONE, leader_id=2, epoch=5, high_watermark=3)
PART = SnapshotReply(error=ErrorCode.NONE, leader_id=2, epoch=5, size_bytes=9, position=4, data=b"part")
VOTED = VoteReply(error=ErrorCode.NONE, leader_id=None, epoch=5, granted=True)
BEGUN = EpochReply(error=ErrorCode.NONE, leader_id=2, epoch=5)
CHANGED = ChangeReply(error=ErrorCode.DUPLICATE_VOTER, leader_id=None, epoch=0, message="it is there")


def served(api_key: ApiKey, version: int, body: bytes) -> tuple[object, bytes]:
    """What a controller reads of a request, and what it writes."""
    if api_key == ApiKey.FETCH:
        answer = in_memory(encode_fetch_response(version, fetch_response(FETCHED)))
        return parse_fetch(decode_fetch_request(version, memoryview(body))), bytes(answer)
    request = decode_request(api_key, version, memoryview(body))
    if api_key == ApiKey.FETCH_SNAPSHOT:
        snapshot = parse_fetch_snapshot(request)
        return snapshot, bytes(encode_response(api_key, version, fetch_snapshot_fields(snapshot, PART)))
    if api_key == ApiKey.ADD_RAFT_VOTER:
        fields = change_reply_fields(api_key, CHANGED)
        return parse_change(api_key, request), bytes(encode_response(api_key, version, fields))
    if api_key == ApiKey.API_VERSIONS:
        feature = {"name": "kraft.version", "min_version": 0, "max_version": 1}
        fields = {"error_code": 0, "api_keys": [], "supported_features": [feature]}
        return request.client_software_name, bytes(encode_response(api_key, version, fields))
    reply = VOTED if api_key == ApiKey.VOTE else BEGUN
    return parse_request(api_key, request, "CONTROLLER"), bytes(
        encode_response(api_key, version, election_reply_fields(reply))
    )


KEY = ReplicaKey(2, UUID(int=2))
FETCH = Fetch(
    cluster_id="c", replica=KEY, epoch=5, fetch_offset=1, last_epoch=4, max_wait_ms=1, max_bytes=9, high_watermark=-1
)
FETCH_SNAPSHOT = FetchSnapshot(
    cluster_id="c", replica=KEY, epoch=5, snapshot_id=SnapshotId(8, 4), position=4, max_bytes=9
)
VOTE = Vote(cluster_id="c", voter=KEY, candidate=KEY, epoch=5, last_epoch=4, last_offset=9, pre_vote=True)
BEGIN = BeginQuorumEpoch(cluster_id="c", voter=KEY, leader_id=2, epoch=5, leader_endpoint=AT)
ADD = AddVoter(
    cluster_id="c", voter=Voter(KEY, (VoterListener("CONTROLLER", "n2", 9093),)), timeout_ms=9, ack_when_committed=False
)


@pytest.mark.parametrize(
    ("request_", "received", "reply"),
    [
        (FETCH, FETCH, FETCHED),
        (FETCH_SNAPSHOT, FETCH_SNAPSHOT, PART),
        (VOTE, VOTE, VOTED),
        (BEGIN, BEGIN, BEGUN),
        (ADD, ADD, CHANGED),
        (ProbeVoter(voter=KEY), "raftwerk", ProbeReply(versions=VersionRange(0, 1))),
    ],
)
def test_each_request_arrives_as_it_is_and_gets_the_reply_of_its_kind(
    request_: Request, received: object, reply: Reply
) -> None:
    async def run() -> None:
        peer = Peer()
        assert await peer.ask(request_) == reply
        assert peer.connections[0].received == [received]

    asyncio.run(run())


def test_fetches_have_a_connection_of_their_own_as_they_may_wait_long() -> None:
    async def run() -> None:
        peer = Peer()
        for request in (FETCH, VOTE, FETCH_SNAPSHOT, BEGIN, FETCH):
            await peer.ask(request)
        fetches, others = (connection.received for connection in peer.connections)
        assert fetches == [FETCH, FETCH_SNAPSHOT, FETCH]
        assert others == [VOTE, BEGIN]
        peer.channel.close()
        assert all(connection.is_closed for connection in peer.connections)

    asyncio.run(run())


def test_requests_that_wait_for_one_attempt_to_connect_all_use_its_connection() -> None:
    async def run() -> None:
        peer = Peer()
        peer.may_connect = asyncio.get_running_loop().create_future()
        asked = [asyncio.create_task(peer.ask(request)) for request in (VOTE, BEGIN, VOTE)]
        await asyncio.sleep(0)
        peer.may_connect.set_result(None)
        assert await asyncio.wait_for(asyncio.gather(*asked), 10) == [VOTED, BEGUN, VOTED]
        (connection,) = peer.connections
        assert connection.received == [VOTE, BEGIN, VOTE]

    asyncio.run(run())


def test_a_node_connects_by_its_name_within_the_request_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    async def connect(host: str, port: int, **options: object) -> None:
        asked.append((host, port, options))

    monkeypatch.setattr(network_channel, "wire_connect", connect)
    asyncio.run(connector(RaftConfig(node_id=1, cluster_id="c", voters={2: AT}))("n2", 9093))  # type: ignore[arg-type]
    assert asked == [("n2", 9093, {"client_id": "raft-1", "timeout_s": 2.0, "login": None})]


def test_a_connection_that_has_ended_is_replaced() -> None:
    async def run() -> None:
        peer = Peer()
        await peer.ask(VOTE)
        peer.connections[0].close()
        assert await peer.ask(VOTE) == VOTED
        assert len(peer.connections) == 2

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RequestTimedOutError("late"), FailureKind.TIMEOUT),
        (ConnectionLostError("gone"), FailureKind.LOST),
        (ConnectionRefusedError(111, "refused"), FailureKind.REFUSED),
    ],
)
def test_a_request_without_an_answer_says_why(error: BaseException, kind: FailureKind) -> None:
    async def run() -> None:
        peer = Peer()
        peer.error = error
        assert await peer.ask(VOTE) is kind

    asyncio.run(run())


def test_an_answer_that_makes_no_sense_counts_as_lost() -> None:
    async def run() -> None:
        peer = Peer()
        for answer in (b"\x01", bytes(encode_response(ApiKey.VOTE, 2, {"error_code": 0, "topics": []}))):
            peer.answer = answer
            assert await peer.ask(VOTE) is FailureKind.LOST

    asyncio.run(run())
