"""The invariant "the metadata of a node are what the committed records say", checked whenever a node has applied more.

Nodes come to an image by the log, by a snapshot, or as the controller that decided what is in it. Whichever way that
was, an image is what the records up to its offset say (`specification/metadata`), also in the order of what is in it,
by which decisions are made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from .....controller.metadata.metadata_image import MetadataImage
from .....controller.metadata.metadata_loader import MetadataLoader
from .....raft.types import CommittedBatch
from ....specification.metadata.metadata_state import MetadataState, Parts
from ..invariant_broken import InvariantBroken


class ImageChecker:
    """Replays what is committed, keeps the metadata of each offset, and compares the images of all nodes with it.

    Where no committed batch ends that it was told of, the first node that is seen there stands for the others.
    """

    def __init__(self) -> None:
        self._state = MetadataState()
        self._committed: list[int] = []
        """The last offsets of the committed batches."""
        self._at_offsets: dict[int, Parts] = {}
        self._seen: dict[int, tuple[MetadataLoader, int]] = {}
        """The loader of each node's present incarnation, and its last offset."""

    def on_committed(self, batches: Iterable[CommittedBatch]) -> None:
        """These batches are committed, after all others."""
        for batch in batches:
            self._state.replay(batch)
            self._committed.append(batch.last_offset)
            self._at_offsets[batch.last_offset] = self._state.parts()

    def after_event(self, node_id: int, loader: MetadataLoader) -> bool:
        """Check the node whose event has just run; whether it has another image. Raises `InvariantBroken`."""
        image, seen = loader.image, self._seen.get(node_id)
        if image.offset < 0 or (seen is not None and seen[0] is loader and seen[1] == image.offset):
            return False
        self._seen[node_id] = loader, image.offset
        parts = parts_of(image)
        known = self._at_offsets.setdefault(image.offset, parts)
        if parts != known:
            detail = f"node {node_id} at {image.offset}: {difference_in(parts, known)}"
            raise InvariantBroken("the metadata of a node are what the committed records say", detail)
        return True

    def at(self, offset: int) -> Parts | None:
        """What is in the images at the offset; None if no node was seen there."""
        return self._at_offsets.get(offset)

    def since(self, offset: int) -> Iterator[Parts]:
        """The committed metadata just before `offset`, and after each batch from there on."""
        first = max(0, bisect_left(self._committed, offset) - 1)
        for last_offset in self._committed[first:]:
            yield self._at_offsets[last_offset]


def difference_in(parts: Parts, known: Parts) -> str:
    """In what two images differ first."""
    for name, part in parts.items():
        if part != known[name]:
            differing = sorted({*map(str, part)} ^ {*map(str, known[name])}) or ["their order"]
            return f"differs in {name}: {', '.join(differing)[:500]}"
    return "no difference"


def parts_of(image: MetadataImage) -> Parts:
    """What is in an image, by what it is about. Values that change in place are copied."""
    return {
        "numbers": (("epoch", image.epoch), ("next producer id", image.next_producer_id)),
        "brokers": tuple(image.brokers.items()),
        "controllers": tuple(image.controllers.items()),
        "topics": tuple(
            ((topic.name, topic_id), tuple(topic.partitions.items())) for topic_id, topic in image.topics_by_id.items()
        ),
        "settings": tuple((key, tuple(values.items())) for key, values in image.configs.items()),
        "features": tuple(image.features.items()),
        "credentials": tuple(image.scram_credentials.items()),
        "access control lists": tuple(image.acls.items()),
        "quotas": tuple((key, tuple(values.items())) for key, values in image.client_quotas.items()),
        "tokens": tuple(image.delegation_tokens.items()),
    }
