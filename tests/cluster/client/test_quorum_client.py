"""How `QuorumClient` treats answers of controllers that do not know the quorum, and which leader counts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from raftwerk.cluster.client import quorum_client
from raftwerk.cluster.client.client_errors import ClientError, RefusedError
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.quorum_client import (
    REPLACED,
    DownVoter,
    NoLeaderError,
    QuorumClient,
    QuorumReplica,
    QuorumView,
    SilentVoter,
    followed_view,
)
from raftwerk.cluster.doctor.cluster_checks import _voters
from raftwerk.cluster.doctor.silent_nodes import bring_back
from raftwerk.raft.types import ReplicaKey
from raftwerk.raft.voters.voter_set import Voter, VoterListener
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode

_HERE = ("localhost", 9093)


def test_another_client_of_the_cluster_has_the_same_addresses() -> None:
    addresses = [("localhost", 9093), ("127.0.0.1", 9094), ("::1", 9095)]
    client = ClusterClient("localhost:9093,127.0.0.1:9094,[::1]:9095")
    assert client.apart().bootstrap == client.bootstrap == addresses


def _answer(error: ErrorCode, *, leader_id: int | None = None, leader_votes: bool = True) -> Struct:
    fields: dict[str, Any] = {"error_code": int(error), "error_message": None, "topics": [], "nodes": []}
    if leader_id is not None:
        row = {"error_code": 0, "leader_id": leader_id, "leader_epoch": 3, "high_watermark": 10}
        fields["topics"] = [Struct({"partitions": [Struct(row | {"current_voters": [], "observers": []})]})]
        listener = Struct({"host": _HERE[0], "port": _HERE[1]})
        fields["nodes"] = [Struct({"node_id": leader_id, "listeners": [listener]})] if leader_votes else []
    return Struct(fields)


class _Scripted(ClusterClient):
    """Returns the given answers one after the other; the last one again and again."""

    def __init__(self, *answers: Struct, timeout_s: float = 5.0) -> None:
        super().__init__("localhost:9093", timeout_s=timeout_s)
        self._answers = list(answers)

    async def request(
        self, api: ApiKey, version: int, fields: Mapping[str, Any], on_no_answer: object = None, **_: Any
    ) -> Struct:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    async def request_at(
        self, endpoint: Any, api: ApiKey, version: int, fields: Mapping[str, Any], on_no_answer: object = None
    ) -> Struct:
        assert endpoint == _HERE
        return await self.request(api, version, fields)


@pytest.mark.parametrize("at_controllers", [False, True])
def test_another_controller_is_asked_when_one_stops(at_controllers: bool) -> None:
    """A stopping controller answers with an error and without topics."""
    gone, found = _answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), _answer(ErrorCode.NONE, leader_id=3)
    client = QuorumClient(_Scripted(gone, found), at_controllers=at_controllers)
    assert asyncio.run(client.describe()).leader_id == 3


@pytest.mark.parametrize("at_controllers", [False, True])
def test_a_controller_with_a_failed_disk_refuses(at_controllers: bool) -> None:
    broken = _answer(ErrorCode.KAFKA_STORAGE_ERROR)
    client = QuorumClient(_Scripted(broken), at_controllers=at_controllers)
    with pytest.raises(RefusedError, match="KAFKA_STORAGE_ERROR"):
        asyncio.run(client.describe())


def test_a_controller_names_the_voters_however_long_they_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the time-out of the description ends while the voters are asked why they are silent."""

    async def slow(*_: object) -> str:
        await asyncio.sleep(0.4)
        return "times out"

    monkeypatch.setattr(quorum_client, "silence_of", slow)
    row = {"error_code": int(ErrorCode.NOT_LEADER_OR_FOLLOWER), "leader_id": -1, "leader_epoch": 3, "high_watermark": 1}
    rows = [Struct({"partitions": [Struct(row | {"current_voters": [], "observers": []})]})]
    voters = [Struct({"node_id": one, "listeners": [Struct({"host": "127.0.0.1", "port": one})]}) for one in (1, 2)]
    unled = Struct({"error_code": 0, "error_message": None, "topics": rows, "nodes": voters})
    client = QuorumClient(_Scripted(unled, timeout_s=0.2), at_controllers=True)
    with pytest.raises(NoLeaderError, match=r"of its voters none answer; 1 \(127.0.0.1:1\) times out; 2 "):
        asyncio.run(client.describe())


def test_static_voters_are_made_dynamic_before_they_change() -> None:
    refused = Struct({"error_code": int(ErrorCode.UNSUPPORTED_VERSION), "error_message": "The voters are static."})
    with pytest.raises(RefusedError) as raised:
        asyncio.run(QuorumClient(_Scripted(refused)).remove_voter(3, UUID(int=3)))
    assert str(raised.value).startswith(
        "controller 3: The voters are static (UNSUPPORTED_VERSION); raftwerk features set "
    )
    assert "kraft.version=1" in str(raised.value) and "features upgrade" not in str(raised.value)


def test_a_voter_that_is_back_with_another_directory_is_no_voter() -> None:
    here, former = _led(1, 4, 30, 9_000), UUID(int=30)
    new = QuorumReplica(3, former, False, 5, 9_990, 9_990)
    view = replace(here, replicas=(*here.replicas, new), endpoints={1: _HERE, 2: _HERE, 3: _HERE})
    assert here.replaced == [] and [one.node_id for one in view.replaced] == [3]
    down = asyncio.run(QuorumClient(_Scripted(_answer(ErrorCode.NONE))).down_voters(view))
    assert down == [DownVoter(3, "localhost:9093", REPLACED)]
    assert "raftwerk quorum remove-controller 3 takes" in bring_back("controller", {3: REPLACED}, None)
    (found,) = _voters(3, [SilentVoter(3, 9_000)], down)
    assert "add-controller -c" in found.way_out and "start controller" not in found.way_out
    assert found.what.startswith("controller 3, a voter of the quorum, is back with another log directory, which")


def test_a_description_of_the_quorum_is_not_taken_for_the_answer_to_a_change() -> None:
    """A leader that was removed from the voters resigns soon; until then no answer has its address."""
    removed = _answer(ErrorCode.NONE, leader_id=1, leader_votes=False)
    next_leader = _answer(ErrorCode.NONE, leader_id=3)
    refused = Struct({"error_code": int(ErrorCode.DUPLICATE_VOTER), "error_message": "it votes already"})
    voter = Voter(ReplicaKey(2, UUID(int=2)), (VoterListener("CONTROLLER", *_HERE),))
    client = QuorumClient(_Scripted(removed, next_leader, refused), at_controllers=True)
    with pytest.raises(RefusedError, match="it votes already"):
        asyncio.run(client.add_voter(voter))
    client = QuorumClient(_Scripted(removed, timeout_s=0.2), at_controllers=True)
    with pytest.raises(ClientError, match="controller 1, which leads the quorum, is no voter any more"):
        asyncio.run(client.add_voter(voter))


def _led(leader: int, epoch: int, *fetched_ms_ago: int) -> QuorumView:
    """How a leader sees the quorum of its own and of others that have fetched so long ago."""
    others = [one for one in (1, 2, 3) if one != leader]
    rows = [(leader, 10_000), *((one, 10_000 - ago) for one, ago in zip(others, fetched_ms_ago, strict=True))]
    replicas = tuple(QuorumReplica(one, UUID(int=one), True, 5, at, at) for one, at in rows)
    return QuorumView(leader, epoch, 5, replicas, {})


def test_a_leader_that_no_majority_fetches_from_is_not_the_active_controller() -> None:
    cut_off, elected = _led(1, 4, 2_500, 2_400), _led(2, 5, 2_500, 300)
    assert followed_view([]) is None and followed_view([cut_off]) is None
    assert followed_view([cut_off, elected]) is elected
    former = _led(1, 4, 900, 900)
    assert followed_view([elected, former]) is elected, "a former leader that was followed a moment ago"


class _Looking(QuorumClient):
    """Gets these views of the quorum one after the other."""

    def __init__(self, *views: QuorumView) -> None:
        super().__init__(ClusterClient("localhost:9093"))
        self._views = list(views)

    async def describe(self) -> QuorumView:
        return self._views.pop(0)


def test_the_same_fetch_told_a_millisecond_later_is_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader derives the time of a fetch from two clocks at each answer, so it differs by a millisecond."""

    async def nobody(_: Any) -> tuple[list[str], list[DownVoter]]:
        return [], [DownVoter(one, "localhost:9093", "refuses the connection") for one in (2, 3)]

    monkeypatch.setattr(quorum_client, "_LOOK_AGAIN_S", 0)
    monkeypatch.setattr(quorum_client, "_asked", nobody)
    first, same, fetched = _led(1, 4, 500, 500), _led(1, 4, 501, 499), _led(1, 4, 501, 0)
    down = asyncio.run(_Looking(first, same).down_voters(first, are_all_asked=True))
    assert [one.node_id for one in down] == [2, 3]
    down = asyncio.run(_Looking(first, fetched).down_voters(first, are_all_asked=True))
    assert [one.node_id for one in down] == [2]
