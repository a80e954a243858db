"""Topics that Metadata creates: only for who may create them, on the cluster or by their names."""

from __future__ import annotations

import pytest
from support.broker.broker_harness import Harness, run

from raftwerk.broker.authorization import Authorization
from raftwerk.security.authorizer.acl_binding import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from raftwerk.security.authorizer.standard_authorizer import StandardAuthorizer
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode


def _allow(operation: AclOperation, kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, "User:*", "*", operation, AclPermissionType.ALLOW)


DESCRIBE = _allow(AclOperation.DESCRIBE, ResourceType.TOPIC, "*")
DENIED, UNKNOWN = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("bindings", "created", "code"),
    [
        ([], [], DENIED),
        ([_allow(AclOperation.CREATE, ResourceType.TOPIC, "new")], [], DENIED),
        ([DESCRIBE], [], DENIED),
        ([DESCRIBE, _allow(AclOperation.CREATE, ResourceType.TOPIC, "other")], [], DENIED),
        ([DESCRIBE, _allow(AclOperation.CREATE, ResourceType.TOPIC, "new")], ["new"], UNKNOWN),
        ([DESCRIBE, _allow(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)], ["new"], UNKNOWN),
    ],
)
def test_metadata_creates_topics_for_who_may(bindings: list[AclBinding], created: list[str], code: ErrorCode) -> None:
    async def test() -> None:
        authorizer = StandardAuthorizer()
        authorizer.replace(bindings)
        harness = Harness(authorization=Authorization(authorizer))
        asked = {"topics": [{"name": "new"}], "allow_auto_topic_creation": True}
        answer = await harness.call(ApiKey.METADATA, 12, asked)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [("new", code)]
        assert harness.controller.created == created

    run(test())


def test_without_the_wish_to_create_a_topic_is_unknown() -> None:
    async def test() -> None:
        authorizer = StandardAuthorizer()
        authorizer.replace([DESCRIBE])
        harness = Harness(authorization=Authorization(authorizer))
        asked = {"topics": [{"name": "new"}], "allow_auto_topic_creation": False}
        answer = await harness.call(ApiKey.METADATA, 12, asked)
        assert [topic.error_code for topic in answer.topics] == [UNKNOWN]

    run(test())
