"""DeleteTopics: each topic of a request is deleted or refused by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ...runtime.incremental_work import Pace, count_in_steps, map_in_steps
from ...security.authorizer.acl_binding import AclOperation, ResourceType
from ...security.authorizer.authorizer import DENIED
from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import MetadataImage, TopicImage
from ..metadata.metadata_records import Record, RemoveTopicRecord
from ..result import ControllerResult, Decision, Response
from ..security.rights import IsAllowed, TopicRights, allows_all
from ..settings import ControllerSettings
from .new_partitions import CountPartitions, counts_nothing, topic_error

if TYPE_CHECKING:
    from ...wire.message_types.topics import DeleteTopicsRequest


_DENIED = "Topic authorization failed."


class _Target(NamedTuple):
    """What a request names to be deleted."""

    name: str | None
    topic_id: UUID | None


def delete_topics(
    image: MetadataImage,
    settings: ControllerSettings,
    request: DeleteTopicsRequest,
    is_allowed: IsAllowed = allows_all,
    count: CountPartitions = counts_nothing,
) -> Decision:
    """DeleteTopics 1-6: by name, and from version 6 by id. What is named twice is not deleted, and has one row."""
    rights = TopicRights(is_allowed, AclOperation.DELETE)
    pace = Pace()
    named = request.get("topics", None)
    if named is None:
        targets = yield from map_in_steps(lambda name: _Target(name, None), request.topic_names, pace)
    else:
        targets = yield from map_in_steps(lambda topic: _Target(topic.name, topic.topic_id), named, pace)
    times = yield from count_in_steps(targets, pace)
    records: list[Record] = []
    results: list[Response] = []
    for target in times:
        cost = 1
        try:
            topic = _topic_to_delete(image, settings, target, times, rights)
            if topic is not None:
                count(len(topic.partitions))
        except ProtocolError as error:
            results.append(
                {**topic_error(_shown_name(image, target, error, rights), error), "topic_id": target.topic_id}
            )
        else:
            if topic is not None:
                records.append(RemoveTopicRecord(topic.topic_id))
                results.append({"name": topic.name, "topic_id": topic.topic_id, "error_code": 0, "error_message": None})
                cost += len(topic.partitions)
        if pace.ends_step(cost):
            yield records
            records = []
    return ControllerResult(records, {"responses": results})


def _topic_to_delete(
    image: MetadataImage,
    settings: ControllerSettings,
    target: _Target,
    times: Mapping[_Target, int],
    rights: TopicRights,
) -> TopicImage | None:
    """The topic, or None when it is named by its id and by its name, and the name has the row that refuses both."""
    name, topic_id = target
    if not settings.delete_topic_enable:
        raise ProtocolError(ErrorCode.TOPIC_DELETION_DISABLED, "")
    if name is not None and topic_id is not None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if topic_id is not None:
        if times[target] > 1:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID, "")
        rights.check(topic.name, _DENIED)
        return None if times.get(_Target(topic.name, None)) == 1 else topic
    if name is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if times[target] > 1:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    if not rights.may_describe(name):
        raise ProtocolError(DENIED[ResourceType.TOPIC], _DENIED)
    topic = image.topics_by_name.get(name)
    if topic is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    rights.check(name, _DENIED)
    if _Target(None, topic.topic_id) in times:
        complaint = "The provided topic name maps to an ID that was already supplied."
        raise ProtocolError(ErrorCode.INVALID_REQUEST, complaint)
    return topic


def _shown_name(image: MetadataImage, target: _Target, error: ProtocolError, rights: TopicRights) -> str | None:
    """The name in the row of a refused topic: that of the request, and of an id if the client may know the topic."""
    if target.name is not None or target.topic_id is None or error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return target.name
    topic = image.topics_by_id[target.topic_id]
    return topic.name if rights.may_describe(topic.name) else None
