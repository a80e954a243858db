"""A controller that refuses our login is named once in the log, with the settings that are wrong."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from uuid import UUID

import pytest

from raftwerk.raft.driver.network_channel import NetworkChannel
from raftwerk.raft.messages.messages import Outgoing, ProbeVoter
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.effects import FailureKind
from raftwerk.raft.types import ReplicaKey
from raftwerk.raft.voters.voter_set import VoterEndpoint
from raftwerk.security.client_login import AuthenticationFailedError
from raftwerk.wire.client import ConnectionLostError


class _Peer:
    peer = "localhost:9093"


class _Ended:
    """A connection that took the login, and has ended since."""

    is_closed = True

    async def send_raw(self, *_: object, **__: object) -> memoryview:
        raise ConnectionLostError("the connection has ended")


def test_a_refused_login_is_told_once_with_the_settings(caplog: pytest.LogCaptureFixture) -> None:
    at = VoterEndpoint("localhost", 9093)

    accepts: list[bool] = []

    async def connect(_host: str, _port: int) -> Any:
        if accepts:
            return _Ended()
        raise AuthenticationFailedError(cast(Any, _Peer()), "refuses the login by PLAIN", "correct the password")

    async def run() -> list[object]:
        channel = NetworkChannel(RaftConfig(node_id=1, cluster_id="c", voters={1: at}), connect)
        probe = Outgoing(id=1, to=2, endpoint=at, request=ProbeVoter(voter=ReplicaKey(2, UUID(int=2))))
        found = [await channel.exchange(probe) for _ in range(3)]
        assert len(caplog.messages) == 1
        accepts.append(True)
        found.append(await channel.exchange(probe))
        accepts.clear()
        return [*found, await channel.exchange(probe)]

    assert asyncio.run(run()) == [FailureKind.LOST] * 5
    told = "the controller at localhost:9093 refuses the login by PLAIN: correct the password; this node's are the"
    assert caplog.messages == [f"{told} settings listener.name.controller.*"] * 2, "again after a login that it took"
