"""Opening all logs of a node at its start; after an unclean shutdown that means to check them.

Source: KIP-831 of Apache Kafka, which reports how many logs are left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...runtime.incremental_work import PLAIN_STEP, Work, run_at_once
from ...runtime.invariants import sometimes
from ...runtime.ports import Runtime
from ...wire.types import TopicPartition
from ..directory_names import DELETED_SUFFIX, FUTURE_SUFFIX, parse_dir_name, parse_future_name
from ..errors import LogDirError, StorageError
from ..state.checkpoints import read_topic_id
from .delayed_deletion import DelayedDeletion
from .log_directories import LogDirectories
from .log_directory import LogDirectory
from .log_manager_config import LogManagerConfig
from .stray_logs import report_strays
from .swap_marks import finish_swaps

METADATA_TOPIC = "__cluster_metadata"
METADATA_LOG = TopicPartition(METADATA_TOPIC, 0)
_REPORT_EVERY_S = 2.0
_logger = logging.getLogger(__name__)


class LoadProgress:
    """How many logs are opened and bytes are checked; logged and told every two seconds where there is a loop."""

    def __init__(self, on_progress: Callable[[str], None]) -> None:
        self._on_progress = on_progress
        self.logs_total = 0
        self.logs_opened = 0
        self.checked_bytes = 0
        self._began_s = self._reported_s = _now_s()

    def opened(self) -> None:
        """One more log is open."""
        self.logs_opened += 1
        self._report()

    def checked(self, byte_count: int) -> None:
        """This many more bytes were checked."""
        self.checked_bytes += byte_count
        self._report()

    def done(self) -> None:
        """Log how long it took, if there was a log."""
        if self.logs_total:
            seconds = _now_s() - self._began_s
            _logger.info(
                "%d logs opened in %.1f s, %.1f MB of them checked", self.logs_opened, seconds, self.checked_bytes / 1e6
            )

    def _report(self) -> None:
        now_s = _now_s()
        if now_s - self._reported_s >= _REPORT_EVERY_S:
            self._reported_s = now_s
            checked = f", {self.checked_bytes / 1e6:,.1f} MB checked so far" if self.checked_bytes else ""
            self._on_progress(f"has opened {self.logs_opened:,} of {self.logs_total:,} logs{checked}")
            _logger.info("opening logs: %d of %d%s", self.logs_opened, self.logs_total, checked)


class LogLoader:
    """Opens the logs in a node's directories; knows how the node was last shut down."""

    def __init__(
        self, runtime: Runtime, config: LogManagerConfig, directories: LogDirectories, deletion: DelayedDeletion
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._directories = directories
        self._deletion = deletion
        self.previous_broker_epoch = -1
        """The broker epoch of the last shutdown, if that was clean in all directories, else -1 (KIP-966)."""

    def begin(self) -> None:
        """Finish interrupted moves between directories, and learn how the directories were left. `LogDirError`."""
        finish_swaps(self._runtime.disk, self._directories)
        epochs = []
        for log_dir in self._directories:
            try:
                epoch = log_dir.take_clean_shutdown_mark()
            except OSError as error:
                self._cannot_load(log_dir, error)
                continue
            epochs.append(-1 if epoch is None else epoch)
            log_dir.was_cleanly_shut_down = epoch is not None
        self.previous_broker_epoch = -1 if self._directories.has_failed else min(epochs)

    def loading(self) -> Work[None]:
        """Open every log, and learn the checkpointed high watermarks of their partitions.

        A directory whose disk refuses fails. `LogDirError` when the node cannot work with what is left.
        """
        progress = LoadProgress(self._config.on_progress)
        for log_dir in self._directories:
            if log_dir.failure is not None:
                continue
            try:
                for step in self._load_directory(log_dir, progress):
                    progress.checked(step.done_bytes)
                    yield step
            except OSError as error:
                self._cannot_load(log_dir, error)
            except StorageError as error:
                cause = error.__cause__
                self._cannot_load(log_dir, cause if isinstance(cause, OSError) else OSError(str(error)))
        if not self._directories.usable:
            raise LogDirError("None of the log directories can be used: mend a disk, or set log.dirs to others.")
        progress.done()

    def _cannot_load(self, log_dir: LogDirectory, error: OSError) -> None:
        sometimes(True, "a log directory could not be loaded")
        self.previous_broker_epoch = -1  # a directory that has failed was probably not shut down cleanly
        if self._directories.is_indispensable(log_dir.path):
            raise LogDirError(f"Log directory {log_dir.path} cannot be read: {error}.") from error
        self._directories.close_all_in(log_dir)
        log_dir.fail(error)

    def _load_directory(self, log_dir: LogDirectory, progress: LoadProgress) -> Work[None]:
        disk, root = self._runtime.disk, log_dir.path
        names = [name for name in disk.listdir(root) if disk.is_dir(f"{root}/{name}")]
        report_strays(root, names)
        progress.logs_total += sum(parse_dir_name(name) is not None for name in names)
        for name in names:
            if name.endswith(DELETED_SUFFIX):
                self._deletion.add([f"{root}/{name}"], 0)
                continue
            if name.endswith(FUTURE_SUFFIX):
                self._load_future_log(log_dir, name)
                continue
            tp = parse_dir_name(name)
            if tp is None or tp.topic == METADATA_TOPIC:
                continue
            is_duplicate = self._is_duplicate(tp, root)
            log = yield from log_dir.opening(
                self._runtime,
                tp,
                self._config.defaults,
                self._deletion,
                clean_shutdown=log_dir.was_cleanly_shut_down,
            )
            if is_duplicate:
                log_dir.duplicate_logs[tp] = log
            else:
                self._directories.add_loaded(log_dir, tp, log)
            progress.opened()
            yield PLAIN_STEP
        log_dir.loaded()

    def _is_duplicate(self, tp: TopicPartition, root: str) -> bool:
        """Whether another directory has a log of that name. `LogDirError` unless it is certainly of another topic.

        A topic may be deleted and created again while the directory of its former log cannot be used (KAFKA-16234).
        """
        others = self._directories.logs_named(tp)
        if not others:
            return False
        topic_id = read_topic_id(self._runtime.disk, f"{root}/{tp}")
        for other in others:
            if topic_id is None or other.topic_id in (None, topic_id):
                place = other.directory.rpartition("/")[0]
                raise LogDirError(f"Partition {tp} is in {place} and in {root}: remove the one that is stale.")
        sometimes(True, "a node found the logs of two topics of the same name in its directories")
        return True

    def _load_future_log(self, log_dir: LogDirectory, name: str) -> None:
        tp, path = parse_future_name(name), f"{log_dir.path}/{name}"
        if tp is None or tp in log_dir.logs or any(tp in other.future_logs for other in self._directories):
            self._deletion.add([path], 0)
            return
        sometimes(True, "a move between log directories went on after a restart")
        log_dir.future_logs[tp] = run_at_once(
            log_dir.opening(
                self._runtime,
                tp,
                self._config.defaults,
                self._deletion,
                clean_shutdown=log_dir.was_cleanly_shut_down,
                path=path,
            )
        )


def _now_s() -> float:
    """The time of the running loop, 0 where there is none."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return 0.0
