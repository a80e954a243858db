"""Logs on their way from one directory of this node to another (AlterReplicaLogDirs, KIP-113).

The copy grows beside the original, as `<topic>-<partition>.<id>-future`, until it holds all that the original does.
Then it takes its place, in several steps on two disks. A file in the target directory, `<name of the copy>.swap`, says
that the copy is complete: written before the original is touched, gone when all is done. Whoever finds it after a crash
goes on from there. A copy without it is just a copy, which may be gone on with or thrown away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from ...runtime.ports import Disk, Runtime
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import TopicPartition
from ..errors import StorageError
from ..names import parse_dir_name
from ..partition_log import PartitionLog
from .held_dir import LogDirState

FUTURE_SUFFIX = "-future"
_SWAP_SUFFIX = ".swap"
_NAME_LENGTH_MAX = 255 - len(_SWAP_SUFFIX)
_logger = logging.getLogger(__name__)


def future_of(name: str) -> TopicPartition | None:
    """The partition that a directory of this name is a copy of, None for any other."""
    original, dot, _ = name.removesuffix(FUTURE_SUFFIX).rpartition(".")
    return parse_dir_name(original) if dot and name.endswith(FUTURE_SUFFIX) else None


class FutureLogs:
    """The copies of a node, by partition."""

    def __init__(self, runtime: Runtime) -> None:
        self._disk = runtime.disk
        self._rng = runtime.rng
        self._held: dict[TopicPartition, tuple[LogDirState, PartitionLog]] = {}

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(list(self._held))

    def begin(
        self, tp: TopicPartition, target: LogDirState, topic_id: UUID | None, open_copy: Callable[[str], PartitionLog]
    ) -> None:
        """An empty copy in `target`, unless there is one; one elsewhere is thrown away.

        `ProtocolError(INVALID_TOPIC_EXCEPTION)` when the topic's name leaves no room, `StorageError`, `OSError`.
        """
        known = self._held.get(tp)
        if known is not None and known[0] is target:
            return
        name = f"{tp}.{self._rng.getrandbits(128):032x}{FUTURE_SUFFIX}"
        if len(name) > _NAME_LENGTH_MAX:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic's name is too long to be moved")
        self.discard(tp)
        target.checkpoints.forget_all_but(target.logs, tp)
        log = open_copy(f"{target.held.path}/{name}")
        if topic_id is not None:
            log.set_topic_id(topic_id)
        self.adopt(target, tp, log)

    def adopt(self, log_dir: LogDirState, tp: TopicPartition, log: PartitionLog) -> None:
        """A copy in `log_dir`."""
        self._held[tp] = (log_dir, log)

    def get(self, tp: TopicPartition) -> tuple[LogDirState, PartitionLog] | None:
        """The directory and the log of the partition's copy."""
        return self._held.get(tp)

    def dir_of(self, tp: TopicPartition) -> LogDirState:
        """The directory of the partition's copy, which there is."""
        return self._held[tp][0]

    def of(self, log_dir: LogDirState) -> dict[TopicPartition, PartitionLog]:
        """The copies in one directory."""
        return {tp: log for tp, (held, log) in self._held.items() if held is log_dir}

    def discard(self, tp: TopicPartition) -> None:
        """Throw the copy away, if there is one; a disk that refuses keeps it."""
        log_dir, log = self._held.pop(tp, (None, None))
        if log_dir is None or log is None:
            return
        log.close(clean=False)
        try:
            self._disk.remove_tree(log.directory)
        except OSError as error:
            _logger.warning("%s is of no use any more, and cannot be removed: %s", log.directory, error)

    def close(self) -> None:
        """Make the copies durable, and give them free."""
        for _, log in self._held.values():
            try:
                log.close()
            except StorageError as error:
                _logger.error("%s", error)
        self._held.clear()

    def swap(self, tp: TopicPartition, original_root: str, take_original_away: Callable[[], None]) -> None:
        """Put the copy, which is complete, in the place of the original.

        `take_original_away` renames the original; if its disk fails at this moment, a later start does it. When
        the copy's disk fails (`OSError`, `StorageError`), what stands on it is finished after a restart, or thrown
        away if the copy was not complete for certain: then the original is untouched.
        """
        log_dir, log = self._held.pop(tp)
        log.close()
        root, path = log_dir.held.path, log.directory
        self._disk.write_atomic(path + _SWAP_SUFFIX, b"")
        try:
            take_original_away()
            self._disk.fsync_dir(original_root)
        except (StorageError, OSError) as error:
            _logger.error("%s moves to %s while its former disk fails: %s", tp, root, error)
            _promote(self._disk, root, path, tp, keep_mark=True)
        else:
            _promote(self._disk, root, path, tp)


def finish_swaps(disk: Disk, roots: Iterable[str]) -> None:
    """Go on with what a crash interrupted. `OSError`s fail the directory later, when it is loaded."""
    roots = list(roots)
    for root in roots:
        try:
            for name in disk.listdir(root):
                tp = future_of(name.removesuffix(_SWAP_SUFFIX))
                if tp is not None and name.endswith(_SWAP_SUFFIX):
                    _finish_swap(disk, roots, f"{root}/{name.removesuffix(_SWAP_SUFFIX)}", tp)
        except OSError as error:
            _logger.error("%s cannot be searched for interrupted moves: %s", root, error)


def _finish_swap(disk: Disk, roots: list[str], path: str, tp: TopicPartition) -> None:
    home = path.rpartition("/")[0]
    is_promoted = not disk.is_dir(path)
    for root in roots:
        if disk.is_dir(f"{root}/{tp}") and not (is_promoted and root == home):
            disk.rename(f"{root}/{tp}", f"{root}/{path.rpartition('/')[2].removesuffix(FUTURE_SUFFIX)}-delete")
            disk.fsync_dir(root)
    _promote(disk, home, path, tp)


def _promote(disk: Disk, root: str, path: str, tp: TopicPartition, *, keep_mark: bool = False) -> None:
    if disk.is_dir(path):
        disk.rename(path, f"{root}/{tp}")
        disk.fsync_dir(root)
    if not keep_mark:
        disk.remove(path + _SWAP_SUFFIX)
        disk.fsync_dir(root)
