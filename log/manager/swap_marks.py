"""Marks of future logs that are complete: `<name of the future log>.swap`, beside the future log.

Such a file says that the copy takes the original's place, and which log the original is: its topic id, and the id of
the log directory that it is in. What the mark says stays true for as long as it is there, whatever happens to the copy
later: that log is void. So a mark stays while the disk of the original is broken, and takes away nothing but the
original, neither a log of another topic of that name nor one in another directory.

There is one exception. A crash right after the mark was written may be followed by a start without the disk that the
mark is on, and the original is used again. If it has grown since, and the copy has not taken its place yet, the mark
is removed, and the move goes on: the copy lacks what the original got meanwhile.

A mark without contents is of an older build. It is about every log of the copy's topic in other directories, and about
none when the copy is gone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID

from ...runtime.invariants import sometimes
from ...runtime.ports import Disk
from ...wire.types import TopicPartition
from ..directory_names import DELETED_SUFFIX, FUTURE_SUFFIX, parse_future_name
from ..errors import CorruptFileError
from ..segment.segment import LOG_SUFFIX
from ..state.checkpoints import decode_uuid, encode_uuid, read_topic_id, remove_durably
from .log_directory import LogDirectory

SWAP_SUFFIX = ".swap"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SwapMark:
    """The original that a complete future log replaces: in which log directory it is, and its topic id."""

    source_id: UUID | None
    """None in a mark of an older build."""
    topic_id: UUID | None
    source_end: tuple[int, int] | None = None
    """The base offset and the bytes of the original's last segment; None where an older build did not note them."""

    def render(self) -> bytes:
        """The bytes of the file."""
        ids = {"sourceDirectoryId": self.source_id, "topicId": self.topic_id}
        known = {key: encode_uuid(value) for key, value in ids.items() if value is not None}
        end = {} if self.source_end is None else {"sourceEnd": self.source_end}
        return json.dumps({"version": 0, **known, **end}, separators=(",", ":")).encode()


def marks_in(disk: Disk, root: str) -> Iterator[tuple[TopicPartition, str, SwapMark]]:
    """The marks in a log directory: the partition, the path of the future log, and the mark.

    `OSError`; `CorruptFileError` for a mark that does not parse.
    """
    for name in disk.listdir(root):
        future = name.removesuffix(SWAP_SUFFIX)
        tp = parse_future_name(future)
        if tp is not None and future != name:
            yield tp, f"{root}/{future}", _read(disk, f"{root}/{name}")


def promote(disk: Disk, root: str, path: str, tp: TopicPartition) -> None:
    """Give the future log at `path` the partition's name, unless it has it already. `OSError`."""
    if disk.is_dir(path):
        disk.rename(path, f"{root}/{tp}")
        disk.fsync_dir(root)


def remove_mark(disk: Disk, path: str) -> None:
    """Durably remove the mark of the future log at `path`. `OSError`."""
    remove_durably(disk, path + SWAP_SUFFIX)


def finish_swaps(disk: Disk, directories: Iterable[LogDirectory]) -> None:
    """Finish the replacements that a crash, or a broken disk of the original, has interrupted.

    A mark stays while its original may be in a directory that cannot be used. An `OSError` fails the directory later,
    when it is loaded. `CorruptFileError`.
    """
    directories = list(directories)
    for home in directories:
        try:
            for tp, path, mark in list(marks_in(disk, home.path)):
                _finish_swap(disk, directories, home, (tp, path, mark))
        except OSError as error:
            _logger.error("%s cannot be searched for interrupted moves: %s", home.path, error)


def _finish_swap(
    disk: Disk, directories: list[LogDirectory], home: LogDirectory, found: tuple[TopicPartition, str, SwapMark]
) -> None:
    tp, path, mark = found
    sometimes(True, "a crash interrupted a log that took another one's place, which was completed")
    if mark.source_id is None:
        copy = path if disk.is_dir(path) else f"{home.path}/{tp}"
        sources = [one for one in directories if one is not home and disk.is_dir(copy)]
        mark = SwapMark(None, _topic_id_in(disk, copy))
    else:
        sources = [one for one in directories if one.directory_id == mark.source_id]
        sometimes(not sources, "a log had taken the place of one whose disk was still broken")
    is_done = bool(sources) or mark.source_id is None
    if disk.is_dir(path) and any(_has_grown(disk, source.path, tp, mark) for source in sources):
        sometimes(True, "a log had gone on since a copy of it was complete, whose disk was absent for a start")
        remove_mark(disk, path)
        return
    for source in sources:
        try:
            _take_away(disk, source.path, path, tp, mark)
        except OSError as error:
            is_done = False
            _logger.error("what %s replaces cannot be removed from %s: %s", path, source.path, error)
    promote(disk, home.path, path, tp)
    if is_done:
        remove_mark(disk, path)


def _has_grown(disk: Disk, root: str, tp: TopicPartition, mark: SwapMark) -> bool:
    """Whether the original has more than it had when its copy was complete."""
    original = f"{root}/{tp}"
    try:
        if mark.source_end is None or not disk.is_dir(original) or _topic_id_in(disk, original) != mark.topic_id:
            return False
        name = max((name for name in disk.listdir(original) if name.endswith(LOG_SUFFIX)), default=None)
        if name is None:
            return False
        file = disk.open(f"{original}/{name}")
        try:
            return (int(name.removesuffix(LOG_SUFFIX)), file.size()) > mark.source_end
        finally:
            file.close()
    except (OSError, ValueError) as error:
        _logger.error("%s cannot be compared with its copy in %s: %s", original, root, error)
        return False


def _take_away(disk: Disk, root: str, copy: str, tp: TopicPartition, mark: SwapMark) -> None:
    """Rename the original if it is there. Without a topic id it was never durable, and is the original, too."""
    original = f"{root}/{tp}"
    if disk.is_dir(original) and _topic_id_in(disk, original) in (None, mark.topic_id):
        name = copy.rpartition("/")[2].removesuffix(FUTURE_SUFFIX)
        disk.rename(original, f"{root}/{name}{DELETED_SUFFIX}")
        disk.fsync_dir(root)


def _topic_id_in(disk: Disk, directory: str) -> UUID | None:
    try:
        return read_topic_id(disk, directory)
    except CorruptFileError:
        return None


def _read(disk: Disk, path: str) -> SwapMark:
    """`CorruptFileError` when the file does not parse, `OSError`."""
    content = disk.read_bytes(path)
    if not content:
        return SwapMark(None, None)
    try:
        fields = json.loads(content)
        topic_id, end = fields.get("topicId"), fields.get("sourceEnd")
        return SwapMark(
            decode_uuid(fields["sourceDirectoryId"]),
            None if topic_id is None else decode_uuid(topic_id),
            None if end is None else (int(end[0]), int(end[1])),
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise CorruptFileError(
            f"{path} does not parse ({error}); it says that the log of that name beside it replaces the one in another "
            "log directory: remove that one, if it is there, and the file."
        ) from error
