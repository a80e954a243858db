"""DeleteTopics: what is refused, and which names a refusal shows."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from support.controller.controller_harness import decided, decoded

from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import (
    Endpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from raftwerk.controller.security.rights import IsAllowed, allows_all
from raftwerk.controller.settings import ControllerSettings
from raftwerk.controller.topics.delete_topics import delete_topics
from raftwerk.security.authorizer.acl_binding import AclOperation, ResourceType
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

TOPIC_ID = UUID(int=1)
BY_NAME, BY_ID = {"name": "t"}, {"name": None, "topic_id": TOPIC_ID}
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def image_of() -> MetadataImage:
    image = MetadataImage("c")
    for record in (
        RegisterBrokerRecord(1, UUID(int=5), (Endpoint("PLAINTEXT", "h", 1),), fenced=False),
        TopicRecord("t", TOPIC_ID),
        PartitionRecord(TOPIC_ID, 0, (1,), (1,), 1),
    ):
        image.replay(record, image.offset + 1, MetadataDelta())
    return image


def allows(*operations: AclOperation) -> IsAllowed:
    """These operations on the topic."""

    def is_allowed(
        operation: AclOperation, resource_type: ResourceType, name: str, *, logs_denial: bool = True
    ) -> bool:
        assert logs_denial or resource_type is ResourceType.CLUSTER, "a topic that is refused is logged"
        assert not logs_denial or resource_type is ResourceType.TOPIC, "that there is no right to all is no refusal"
        return resource_type is ResourceType.TOPIC and operation in operations

    return is_allowed


def delete(
    *topics: dict[str, Any], is_allowed: IsAllowed = allows_all, enabled: bool = True
) -> tuple[list[tuple[str | None, int]], list[Any]]:
    """The names and errors of the answer, and the records."""
    settings = ControllerSettings(1, delete_topic_enable=enabled)
    request = decoded(ApiKey.DELETE_TOPICS, topics=list(topics))
    result = decided(delete_topics(image_of(), settings, request, is_allowed))
    return [(row["name"], row["error_code"]) for row in result.response["responses"]], list(result.records)


@pytest.mark.parametrize("topic", [BY_NAME, BY_ID])
def test_a_topic_is_deleted_by_its_name_or_its_id(topic: dict[str, Any]) -> None:
    assert delete(topic) == ([("t", 0)], [RemoveTopicRecord(TOPIC_ID)])


@pytest.mark.parametrize("topic", [BY_NAME, BY_ID])
def test_where_topics_are_not_deleted_none_is(topic: dict[str, Any]) -> None:
    ((_, error),), records = delete(topic, enabled=False)
    assert error == ErrorCode.TOPIC_DELETION_DISABLED
    assert records == []


def test_who_may_not_delete_learns_the_name_of_an_id_only_with_the_right_to_describe_it() -> None:
    assert delete(BY_ID, is_allowed=allows()) == ([(None, DENIED)], [])
    assert delete(BY_ID, is_allowed=allows(AclOperation.DESCRIBE)) == ([("t", DENIED)], [])
    assert delete(BY_NAME, is_allowed=allows(AclOperation.DESCRIBE)) == ([("t", DENIED)], [])
    both = allows(AclOperation.DESCRIBE, AclOperation.DELETE)
    assert delete(BY_ID, is_allowed=both) == ([("t", 0)], [RemoveTopicRecord(TOPIC_ID)])


def test_a_topic_that_may_not_be_known_is_refused_as_one_that_is_not_there() -> None:
    assert delete({"name": "nowhere"}, is_allowed=allows()) == ([("nowhere", DENIED)], [])
    assert delete(BY_NAME, is_allowed=allows()) == ([("t", DENIED)], [])
    assert delete({"name": "nowhere"}) == ([("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)], [])


@pytest.mark.parametrize("topics", [(BY_NAME, BY_NAME), (BY_ID, BY_ID), (BY_NAME, BY_ID)])
def test_a_topic_that_is_named_twice_stays(topics: tuple[dict[str, Any], ...]) -> None:
    rows, records = delete(*topics)
    assert {error for _, error in rows} == {ErrorCode.INVALID_REQUEST}
    assert records == []
