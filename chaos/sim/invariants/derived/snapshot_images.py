"""The invariants of metadata snapshots: what is in them, and what nodes make of them.

"A snapshot holds the metadata up to its end": the image that its records make is that of a node at this offset,
whether its node wrote the file or fetched it. "A node that has loaded a snapshot has what is in it": its image at the
snapshot's end is the one that the simulator itself makes of the whole file.
"""

from __future__ import annotations

from .....controller.metadata.metadata_image import MetadataImage
from .....controller.metadata.metadata_loader import MetadataLoader
from .....raft.driver.raft_driver import RaftDriver
from .....raft.replication.partition_raft_log import PartitionRaftLog
from .....raft.snapshots.snapshot_store import snapshot_batches
from .....wire.errors import ProtocolError
from .....wire.types import SnapshotId
from ....specification.metadata.metadata_state import Parts
from ...disk.sim_disk import SimDisk
from ..invariant_broken import InvariantBroken
from .metadata_images import ImageChecker, difference_in, parts_of


class SnapshotChecker:
    """Remembers what is in each snapshot, and which snapshots a node was seen with."""

    def __init__(self, images: ImageChecker) -> None:
        self._images = images
        self._contents: dict[SnapshotId, tuple[bytes, Parts]] = {}
        self._seen: dict[int, SnapshotId] = {}
        self._loaded: dict[int, tuple[MetadataLoader, int]] = {}
        """The loader of each node's present incarnation, and the offset of its image."""

    def after_event(self, node_id: int, loader: MetadataLoader, raft: RaftDriver, disk: SimDisk) -> None:
        """Check the node whose event has just run. Raises `InvariantBroken`."""
        log = raft.quorum_state.log
        latest = log.latest_snapshot
        is_new, is_loaded = latest != self._seen.get(node_id), self._has_another_image(node_id, loader)
        if latest is None or not (is_new or is_loaded) or not isinstance(log, PartitionRaftLog):
            return
        is_loaded &= latest.end_offset == loader.image.offset + 1
        if is_new or is_loaded:
            self._seen[node_id] = latest
            contents = self._contents_of(latest, loader, disk.read_bytes(log.snapshots.path(latest)))
            if contents is not None:
                self._compare(node_id, latest, contents, loader.image if is_loaded else None)

    def _has_another_image(self, node_id: int, loader: MetadataLoader) -> bool:
        before, now = self._loaded.get(node_id), loader.image.offset
        self._loaded[node_id] = loader, now
        return before is None or before[0] is not loader or before[1] != now

    def _compare(self, node_id: int, snapshot_id: SnapshotId, contents: Parts, image: MetadataImage | None) -> None:
        """Compare what is in a snapshot with the images that nodes had at its end; `image` is there just now."""
        where = f"node {node_id}, snapshot {snapshot_id.end_offset}"
        if image is not None and parts_of(image) != contents:
            detail = f"{where}: its image {difference_in(parts_of(image), contents)}"
            raise InvariantBroken("a node that has loaded a snapshot has what is in it", detail)
        known = self._images.at(snapshot_id.end_offset - 1)
        if known is not None and known != contents:
            raise InvariantBroken(
                "a snapshot holds the metadata up to its end", f"{where} {difference_in(contents, known)}"
            )

    def _contents_of(self, snapshot_id: SnapshotId, loader: MetadataLoader, data: bytes) -> Parts | None:
        """The image that a file makes; None if it is damaged. Files of a snapshot differ in what is about voters."""
        known = self._contents.get(snapshot_id)
        if known is not None and known[0] == data:
            return known[1]
        reader = MetadataLoader(loader.image.cluster_id, supported_features=loader.supported_features)
        try:
            for batch in snapshot_batches(data):
                reader.on_snapshot(snapshot_id, batch)
        except ProtocolError:
            return None
        reader.on_snapshot(snapshot_id, None)
        self._contents[snapshot_id] = data, parts_of(reader.image)
        return self._contents[snapshot_id][1]
