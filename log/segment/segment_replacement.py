"""Segments that take the place of others, or go, without holding up the loop: which names change, in which order.

A compacted segment, whose files are durable, gets the ending `.swap`; when that is durable it is read in the place of
those it covers, and an interrupted replacement is completed when the log is opened again
(`recovery.complete_swaps`). Then the others get the ending `.deleted`, and it its own name. Expired segments go oldest
first; where all of them do, not before the name of the next is durable, as the log's end is in that name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...runtime.invariants import invariant
from ..errors import StorageError
from ..recovery.durability import Durability, LogFiles
from .segment import DELETED_SUFFIX, SWAP_SUFFIX, Segment
from .segment_renames import SegmentRenames, Stage, in_a_loop


class SegmentReplacement:
    """One change at a time. `on_deleted` is told the new paths of files that nobody needs any more; None: they go."""

    def __init__(
        self,
        files: LogFiles,
        durability: Durability,
        on_deleted: Callable[[list[str]], None] | None,
        fail: Callable[[str, BaseException], StorageError],
    ) -> None:
        self._files = files
        self._durability = durability
        self._on_deleted = on_deleted or self._remove
        self._fail = fail
        self._change: SegmentRenames | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a change has begun and is not over."""
        return self._change is not None and not self._change.is_over

    def settle(self) -> None:
        """Finish what is under way, here and now. `StorageError`."""
        if self._change is not None and not self._change.is_over:
            self._change.finish()

    def replace(self, group: Sequence[Segment], cleaned: Segment) -> SegmentRenames:
        """Put `cleaned` in the place of `group`, when the caller has the change done."""
        self._files.segments.check_replaceable(group, cleaned)
        deleted: list[str] = []

        def make_ready() -> list[tuple[str, str]]:
            cleaned.park()
            return cleaned.renames_to(SWAP_SUFFIX)

        def put_in_place() -> None:
            cleaned.renamed_to(SWAP_SUFFIX)
            self._files.segments.put(group, cleaned)
            self._durability.segments_replaced(group)

        def name_it() -> list[tuple[str, str]]:
            cleaned.pin()
            return cleaned.renames_to("")

        def named() -> None:
            cleaned.renamed_to("")
            self._on_deleted(deleted)

        return self._begin(
            "compacted segments could not be put in place",
            Stage(make_ready, put_in_place),
            Stage(lambda: self._away(group, deleted), _nothing),
            Stage(name_it, named),
        )

    def put_away(self, count: int, *, is_end_new: bool) -> None:
        """The first `count` segments are gone; their files follow. `is_end_new`: the log's end has a new file's name.

        Done on return where there is no loop, `StorageError` then.
        """
        files, deleted = self._files, list[str]()
        self._durability.segments_gone(files.segments.items[:count])
        gone = files.segments.take_first(count)
        away = Stage(lambda: self._away(gone, deleted), lambda: self._on_deleted(deleted))
        stages = [Stage(list, _nothing), away] if is_end_new else [away]
        change = self._begin("a segment could not be deleted", *stages)
        if in_a_loop():
            change.soon().add_done_callback(lambda done: done.cancelled() or done.exception())
        else:
            change.finish()

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            self._files.disk.remove(path)

    def _begin(self, what: str, *stages: Stage) -> SegmentRenames:
        invariant(not self.is_under_way, "names of a log's files are changed by one at a time")
        files = self._files
        self._change = SegmentRenames(files.disk, files.directory, stages, lambda error: self._fail(what, error))
        return self._change

    def _away(self, segments: Iterable[Segment], deleted: list[str]) -> list[tuple[str, str]]:
        """The files of these segments, and the snapshots that no segment needs any more, for `deleted`."""
        renames: list[tuple[str, str]] = []
        for segment in segments:
            segment.close()
            renames += segment.renames_to(DELETED_SUFFIX)
        stray = self._files.snapshots.take_stray(segment.base_offset for segment in self._files.segments)
        renames += [(path, path + DELETED_SUFFIX) for path in stray]
        deleted.extend(target for _, target in renames)
        return renames


def _nothing() -> None:
    pass
