"""DeleteTopics: each topic of a request is deleted or refused by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import MetadataImage, TopicImage
from ..metadata.metadata_records import Record, RemoveTopicRecord
from ..result import ControllerResult, Response
from ..settings import ControllerSettings
from .new_partitions import topic_error

if TYPE_CHECKING:
    from ...wire.message_types.topics import DeleteTopicsRequest


def delete_topics(image: MetadataImage, settings: ControllerSettings, request: DeleteTopicsRequest) -> ControllerResult:
    """DeleteTopics 1-6: by name, and from version 6 by id."""
    named = request.get("topics", None)
    if named is None:
        asked: list[tuple[str | None, UUID | None]] = [(name, None) for name in request.topic_names]
    else:
        asked = [(topic.name, topic.topic_id) for topic in named]
    records: list[Record] = []
    results: list[Response] = []
    seen: dict[UUID, None] = {}
    for name, topic_id in asked:
        try:
            topic = _topic_to_delete(image, settings, name, topic_id)
            if topic.topic_id in seen:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
        except ProtocolError as error:
            results.append({**topic_error(name, error), "topic_id": topic_id})
            continue
        seen[topic.topic_id] = None
        records.append(RemoveTopicRecord(topic.topic_id))
        results.append({"name": topic.name, "topic_id": topic.topic_id, "error_code": 0, "error_message": None})
    return ControllerResult(records, {"responses": results})


def _topic_to_delete(
    image: MetadataImage, settings: ControllerSettings, name: str | None, topic_id: UUID | None
) -> TopicImage:
    if not settings.delete_topic_enable:
        raise ProtocolError(ErrorCode.TOPIC_DELETION_DISABLED, "")
    if name is not None and topic_id is not None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if topic_id is not None:
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID, "")
        return topic
    if name is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    topic = image.topics_by_name.get(name)
    if topic is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    return topic
