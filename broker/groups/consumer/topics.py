"""The topics of the cluster, as groups look them up, and regular expressions over their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol
from uuid import UUID

from ....controller.metadata.metadata_image import MetadataImage
from ...topic_view import INTERNAL_TOPICS


class Topics(Protocol):
    """A view of the topics that exist now."""

    def find(self, name: str) -> tuple[UUID, int] | None:
        """Topic id and number of partitions; None for an unknown topic."""
        ...

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of a topic; None for an unknown id."""
        ...

    def names(self) -> Iterable[str]:
        """The names that a regular expression may match, sorted."""
        ...


class ImageTopics:
    """The topics of the committed metadata."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    def find(self, name: str) -> tuple[UUID, int] | None:
        """See `Topics`."""
        topic = self._image().topics_by_name.get(name)
        return None if topic is None else (topic.topic_id, len(topic.partitions))

    def name_of(self, topic_id: UUID) -> str | None:
        """See `Topics`."""
        topic = self._image().topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        """See `Topics`. Internal topics never match."""
        return sorted(name for name in self._image().topics_by_name if name not in INTERNAL_TOPICS)


def compile_regex(pattern: str) -> Any:
    """The compiled pattern in RE2's syntax; None where it is invalid."""
    import re2  # imported here because few groups need it

    try:
        return re2.compile(pattern)
    except re2.error:
        return None


def matching(pattern: str, topics: Topics) -> list[str]:
    """The topics whose whole name matches the pattern."""
    compiled = compile_regex(pattern)
    return [] if compiled is None else [name for name in topics.names() if compiled.fullmatch(name)]
