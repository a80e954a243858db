"""A check of the authorization tests: each right that a handler forgets to ask for must change what users are told.

The answers are compared with those of Apache Kafka 4.2. APIs that only controllers serve, and rights that no call of
the transcript asks for, have theirs beside their tests (`test_rights_at_controllers.py`, `test_two_phase_commit.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from support.security.authorization_answers import SETTINGS, Resources, Users, make_resources
from support.security.authorization_calls import Call
from support.security.authorization_users import USERS, Right, right_name
from support.security.kafka_authorization import CALLS, kafka_answers
from support.security.node_in_process import node_in_process
from support.security.right_mutants import leave_out_check

from raftwerk.broker.apis.api_table import API_TABLE
from raftwerk.broker.to_controller.auto_topic_creation_manager import AutoTopicCreationManager
from raftwerk.security.authorizer.acl_binding import AclOperation, ResourceType
from raftwerk.wire.api_keys import ApiKey

CALLED = {call.key for call in CALLS}
NOT_IN_CALLS = {
    (ApiKey.INIT_PRODUCER_ID, (AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID)),
    (ApiKey.DELETE_TOPICS, (AclOperation.DELETE, ResourceType.TOPIC)),
}
"""Rights to what no call does: what is not stable in Kafka 4.2, and the end of a topic that is there."""
CHECKS = [
    pytest.param(spec.key, right, id=f"{spec.key.name}-{right_name(right)}")
    for spec in API_TABLE
    if spec.key in CALLED
    for right in ((one.operation, one.resource_type) for one in spec.checks)
    if (spec.key, right) not in NOT_IN_CALLS
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Resources]]:
    """A node with the resources of the calls, and the loop that it runs on."""
    with asyncio.Runner() as runner:
        node = node_in_process(tmp_path_factory.mktemp("node"), SETTINGS)
        users = Users(runner.run(node.__aenter__()))
        try:
            yield runner, Resources(users, runner.run(make_resources(users)))
        finally:
            users.close()
            runner.run(node.__aexit__(None, None, None))


async def _differs(resources: Resources, key: ApiKey) -> bool:
    kafka = kafka_answers()
    for call in CALLS:
        if call.key is key:
            for user in USERS:
                if await resources.answer(user, call) != kafka[call.name][user].strip():
                    return True
    return False


@pytest.mark.parametrize("key", sorted(CALLED), ids=lambda key: key.name)
def test_without_a_bug_users_are_told_what_kafka_tells_them(
    broker: tuple[asyncio.Runner, Resources], key: ApiKey
) -> None:
    runner, resources = broker
    assert not runner.run(_differs(resources, key))


@pytest.mark.parametrize(("key", "right"), CHECKS)
def test_a_check_that_is_left_out_is_noticed(
    broker: tuple[asyncio.Runner, Resources], key: ApiKey, right: Right, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, resources = broker
    leave_out_check(monkeypatch, key, right)
    assert runner.run(_differs(resources, key))


def test_the_controller_asks_again_whether_a_client_may_create_the_topic_that_it_asks_for(
    broker: tuple[asyncio.Runner, Resources], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, resources = broker
    leave_out_check(monkeypatch, ApiKey.METADATA, (AclOperation.CREATE, ResourceType.TOPIC))
    asked = {"topics": [{"name": "missing"}], "allow_auto_topic_creation": True}
    creation = Call("", ApiKey.METADATA, 12, lambda ids: asked)
    refused: asyncio.Queue[str] = asyncio.Queue()
    monkeypatch.setattr(AutoTopicCreationManager, "_log", lambda self, what, code, reason: refused.put_nowait(what))

    async def create() -> None:
        assert await resources.answer("topic-describe", creation) == "UNKNOWN_TOPIC_OR_PARTITION missing:"
        async with asyncio.timeout(20):
            assert await refused.get() == "topic missing"

    runner.run(create())
