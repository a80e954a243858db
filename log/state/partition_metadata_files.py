"""A log's small files that are written as a whole: `partition.metadata` and `leader-epoch-checkpoint`.

The first changes once for a partition, the second once for a leader. Both must be durable before the recovery point
moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

from ...runtime.ports import Disk
from ..errors import is_no_space, refused_write
from .checkpoints import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, render_epochs, render_topic_id, write_topic_id
from .leader_epoch_cache import LeaderEpochCache


class PartitionMetadataFiles:
    """Writes the two files, and knows which of them lack a change."""

    def __init__(self, disk: Disk, directory: str, epoch_cache: LeaderEpochCache) -> None:
        self._disk = disk
        self._directory = directory
        self._id_path = f"{directory}/{PARTITION_METADATA_FILE}"
        self._epochs_path = f"{directory}/{LEADER_EPOCH_FILE}"
        self._epoch_cache = epoch_cache
        self._under_way: dict[str, asyncio.Future[None]] = {}
        self.unsaved_topic_id: UUID | None = None
        """The topic id while `partition.metadata` is not durable; it becomes so before anything else does."""

    def set_topic_id(self, topic_id: UUID, *, durably: bool) -> None:
        """Write `partition.metadata`. `StorageError`."""
        try:
            write_topic_id(self._disk, self._directory, topic_id, durably=durably)
        except OSError as error:
            raise refused_write(f"{self._id_path} cannot be written: {error}", error) from error
        self.unsaved_topic_id = None if durably else topic_id

    def save(self) -> None:
        """Durably write the files that lack a change. `OSError`."""
        if self.unsaved_topic_id is not None:
            self._disk.write_atomic(self._id_path, render_topic_id(self.unsaved_topic_id))
            self.unsaved_topic_id = None
        if self._epoch_cache.is_dirty or self._epochs_path in self._under_way:
            self._disk.write_atomic(self._epochs_path, render_epochs(self._epoch_cache.entries))
            self._epoch_cache.is_dirty = False

    def save_soon(self) -> list[asyncio.Future[None]]:
        """Begin to write the files that lack a change; when the returned futures end, they are durable.

        A future fails with `OSError`, or with `NoSpaceError`: then the old file is there, and the next call tries
        again.
        """
        topic_id, cache = self.unsaved_topic_id, self._epoch_cache

        def id_saved(is_good: bool) -> None:
            if is_good and self.unsaved_topic_id == topic_id:
                self.unsaved_topic_id = None

        def epochs_saved(is_good: bool) -> None:
            cache.is_dirty = cache.is_dirty or not is_good

        if topic_id is not None and self._id_path not in self._under_way:
            self._begin(self._id_path, render_topic_id(topic_id), id_saved)
        if cache.is_dirty:
            cache.is_dirty = False
            self._begin(self._epochs_path, render_epochs(cache.entries), epochs_saved)
        return list(self._under_way.values())

    def _begin(self, path: str, content: bytes, saved: Callable[[bool], None]) -> None:
        result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way[path] = result

        def on_done(writing: asyncio.Future[None]) -> None:
            error = writing.exception()
            saved(error is None)
            if self._under_way.get(path) is result:
                del self._under_way[path]
            if error is None:
                result.set_result(None)
            elif isinstance(error, OSError) and is_no_space(error):
                result.set_exception(refused_write(f"{path} cannot be written: {error}", error))
            else:
                result.set_exception(error)

        self._disk.write_atomic_soon(path, content).add_done_callback(on_done)
