"""The invariant "a node is told of all that has changed in its metadata", whichever way it came to it.

What has changed is found by comparing the images before and after. What a node is told is in the deltas that its loader
publishes: from records, or from the difference that a loaded snapshot makes. A change that is not told stays without
effect on the node: a deleted topic keeps its log there, a quota that was removed still throttles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from uuid import UUID

from .....controller.metadata.metadata_image import MetadataDelta, MetadataImage
from .....controller.metadata.metadata_loader import MetadataLoader
from ....specification.metadata.metadata_state import Part, Parts
from ..invariant_broken import InvariantBroken
from .metadata_images import ImageChecker

_TOLD_AS = {
    "brokers": "changed_brokers",
    "controllers": "changed_controllers",
    "settings": "changed_configs",
    "features": "changed_features",
    "credentials": "changed_credentials",
    "access control lists": "changed_acls",
    "quotas": "changed_quotas",
    "tokens": "changed_tokens",
}
"""For the parts of an image that have one value for each key: where a delta names the keys."""


@dataclass(slots=True)
class _Node:
    """The loader of a node's present incarnation, the offset up to which it was judged, and what it was told since."""

    loader: MetadataLoader
    offset: int
    told: dict[object, None] = field(default_factory=dict)

    def on_publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """The loader publishes a delta."""
        self.told.update(dict.fromkeys(_named_in(delta)))


class MetadataChangeChecker:
    """Compares what nodes are told with the images that `images` has seen."""

    def __init__(self, images: ImageChecker) -> None:
        self._images = images
        self._nodes: dict[int, _Node] = {}

    def watch(self, node_id: int, loader: MetadataLoader) -> None:
        """A process has started. What it has loaded by now is not judged."""
        node = self._nodes[node_id] = _Node(loader, loader.image.offset)
        loader.subscribe(node.on_publish)

    def after_metadata(self, node_id: int) -> None:
        """Check the node, whose image has just changed and was seen by `images`. Raises `InvariantBroken`."""
        node = self._nodes[node_id]
        before, after = self._images.at(node.offset), self._images.at(node.loader.image.offset)
        if before is not None and after is not None:
            for change in _changes(before, after):
                if change not in node.told:
                    detail = f"node {node_id} from {node.offset} to {node.loader.image.offset}: {change}"
                    raise InvariantBroken("a node is told of all that has changed in its metadata", detail)
        node.offset = node.loader.image.offset
        node.told.clear()


def _changes(before: Parts, after: Parts) -> Iterator[object]:
    for part, name in _TOLD_AS.items():
        if before[part] != after[part]:
            for key in _changed(dict(before[part]), dict(after[part])):
                yield name, key
    if before["topics"] != after["topics"]:
        yield from _changes_of_topics(_topics(before["topics"]), _topics(after["topics"]))


def _changes_of_topics(
    before: Mapping[UUID, Mapping[int, Any]], after: Mapping[UUID, Mapping[int, Any]]
) -> Iterator[object]:
    for topic_id in before:
        if topic_id not in after:
            yield "deleted_topics", topic_id
    for topic_id, partitions in after.items():
        if topic_id not in before:
            yield "created_topics", topic_id
        for index in _changed(before.get(topic_id, {}), partitions):
            yield "changed_partitions", (topic_id, index)


def _topics(part: Part) -> dict[UUID, Mapping[int, Any]]:
    return {topic_id: dict(partitions) for (_, topic_id), partitions in part}


def _changed(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> list[Any]:
    gone = [key for key in before if key not in after]
    return [*gone, *(key for key, value in after.items() if key not in before or before[key] != value)]


def _named_in(delta: MetadataDelta) -> Iterator[object]:
    for one in fields(delta):
        for key in getattr(delta, one.name):
            yield one.name, key
