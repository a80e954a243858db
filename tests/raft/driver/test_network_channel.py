"""How requests to another controller share its connections."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from raftwerk.raft.driver.network_channel import NetworkChannel
from raftwerk.raft.messages.messages import Outgoing, ProbeVoter
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.effects import FailureKind
from raftwerk.raft.types import ReplicaKey
from raftwerk.raft.voters.voter_set import VoterEndpoint

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
