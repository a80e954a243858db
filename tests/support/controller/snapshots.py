"""What a node has that loads a snapshot of the metadata."""

from __future__ import annotations

from raftwerk.controller.metadata.metadata_image import MetadataImage
from raftwerk.controller.metadata.metadata_snapshot import snapshot_records


def restored_from_snapshot(image: MetadataImage) -> MetadataImage:
    """The image that the records of this one's snapshot give."""
    restored = MetadataImage("c")
    for record in snapshot_records(image):
        restored.restore(record)
    restored.advance(image.offset, image.epoch)
    return restored
