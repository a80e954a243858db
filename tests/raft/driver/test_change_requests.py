"""Requests to a driver for changes of the voters, each with its one answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from support.raft.lone_voter import CONFIG, LoneVoter, run

from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.types import METADATA_TOPIC, NO_DIRECTORY
from raftwerk.raft.voters.voter_set import VoterListener
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import decode_request, decode_response, encode_request, encode_response
from raftwerk.wire.errors import ErrorCode

OWN = VoterListener("CONTROLLER", "n1", 9093)
DYNAMIC = replace(CONFIG, directory_id=UUID(int=1), listeners=(OWN,))


def named(node_id: int, **fields: Any) -> dict[str, Any]:
    return {"cluster_id": "c", "voter_id": node_id, "voter_directory_id": UUID(int=node_id)} | fields


def at(host: str) -> dict[str, Any]:
    return {"listeners": [{"name": "CONTROLLER", "host": host, "port": 9093}]}


ADD = named(2, timeout=5000, ack_when_committed=True, **at("n2"))
REMOVE = named(1)


def update(host: str) -> dict[str, Any]:
    feature = {"min_supported_version": 0, "max_supported_version": 1}
    return named(1, current_leader_epoch=1, k_raft_version_feature=feature, **at(host))


async def ask(node: LoneVoter, api_key: ApiKey, fields: dict[str, Any]) -> Any:
    """A request as it comes from the wire, and its response as it goes over it."""
    version = 1 if api_key == ApiKey.ADD_RAFT_VOTER else 0
    request = decode_request(api_key, version, memoryview(encode_request(api_key, version, fields)))
    response = await node.driver.handle_request(api_key, version, request)
    return decode_response(api_key, version, memoryview(encode_response(api_key, version, response)))


async def upgraded(node: LoneVoter, config: RaftConfig = DYNAMIC) -> None:
    """Its voters are recorded."""
    driver = await node.start(config)
    driver.upgrade_kraft_version(driver.epoch, 1, validate_only=False)
    await asyncio.sleep(1)
    assert driver.kraft_version == 1


def test_a_version_counts_for_others_once_it_is_committed() -> None:
    async def test(node: LoneVoter) -> None:
        driver = await node.start(DYNAMIC)
        driver.upgrade_kraft_version(driver.epoch, 1, validate_only=True)
        await asyncio.sleep(1)
        assert driver.kraft_version == 0
        driver.upgrade_kraft_version(driver.epoch, 1, validate_only=False)
        assert driver.kraft_version == 0
        await asyncio.sleep(1)
        assert driver.kraft_version == 1
        await driver.stop()

    run(test)


def test_a_refused_change_is_answered_with_the_reason() -> None:
    async def test(node: LoneVoter) -> None:
        await node.start(DYNAMIC)
        refused = await ask(node, ApiKey.ADD_RAFT_VOTER, ADD)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "voters are static" in refused.error_message
        nobody = await ask(node, ApiKey.REMOVE_RAFT_VOTER, REMOVE | {"voter_directory_id": NO_DIRECTORY})
        assert (nobody.error_code, nobody.error_message) == (
            ErrorCode.INVALID_REQUEST,
            "a voter is named by its node id and its directory id",
        )
        await node.driver.stop()

    run(test)


def test_a_change_is_answered_when_it_is_committed() -> None:
    async def test(node: LoneVoter) -> None:
        await upgraded(node)
        changed = await ask(node, ApiKey.UPDATE_RAFT_VOTER, update("elsewhere"))
        assert changed.error_code == ErrorCode.NONE
        assert [voter.listeners for voter in node.driver.voters.voters] == [(OWN._replace(host="elsewhere"),)]
        last = await ask(node, ApiKey.REMOVE_RAFT_VOTER, REMOVE)
        assert "the last voter" in last.error_message
        await node.driver.stop()

    run(test)


async def hang(_host: str, _port: int) -> Any:
    await asyncio.get_running_loop().create_future()


def test_a_change_that_waits_is_answered_when_its_leader_stops() -> None:
    async def test(node: LoneVoter) -> None:
        node.connect = hang
        await upgraded(node)
        waiting = asyncio.create_task(ask(node, ApiKey.ADD_RAFT_VOTER, ADD))
        await asyncio.sleep(1)
        assert not waiting.done(), "the new voter is asked for its versions"
        await node.driver.stop()
        refused = await waiting
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test)


def test_a_change_whose_answer_could_not_be_sent_is_answered_when_the_node_leaves_the_quorum() -> None:
    """A later epoch ends the leadership, but it cannot be written, and so no effect of it is carried out."""

    async def test(node: LoneVoter) -> None:
        node.connect = hang
        await upgraded(node)
        waiting = asyncio.create_task(ask(node, ApiKey.ADD_RAFT_VOTER, ADD))
        await asyncio.sleep(1)
        node.disk.fail_dir("/data")
        partition = {
            "partition_index": 0,
            "leader_id": 2,
            "leader_epoch": 7,
        }
        begin = {"cluster_id": "c", "topics": [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]}
        refused = await ask(node, ApiKey.BEGIN_QUORUM_EPOCH, begin)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        given_up = await waiting
        assert (given_up.error_code, given_up.error_message) == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            "the node is stopping",
        )
        await node.driver.stop()

    run(test)


@pytest.mark.parametrize("has_failed", [False, True])
def test_who_is_not_in_the_quorum_refuses_a_change(has_failed: bool) -> None:
    async def test(node: LoneVoter) -> None:
        await upgraded(node)
        if has_failed:
            node.disk.fail_dir("/data")
            refused = await ask(node, ApiKey.UPDATE_RAFT_VOTER, update("elsewhere"))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR, "the record cannot be written"
            assert node.driver.failure.done()
        await node.driver.stop()
        refused = await ask(node, ApiKey.ADD_RAFT_VOTER, ADD)
        expected = ErrorCode.KAFKA_STORAGE_ERROR if has_failed else ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused.error_code == expected

    run(test)
