"""The metadata loader: it replays committed records into the image of a node and publishes what changed.

Every node, broker or controller, has one `MetadataLoader`. It calls its publishers in the order of their subscription.
They get the live image, which the next commit changes in place: `copy` it to keep a state.

When enough bytes are committed or enough time has passed, the loader writes the image as a snapshot, and the quorum may
then delete the log before it. Each node makes its own snapshots. A snapshot is due at once when the record version has
changed: older software can then start from it and need not read the log before.

A value of a configuration that this build does not take is passed over with a line in the log: the former value holds,
or the default. An earlier build may have recorded it.

The same holds for a payload that is no record: all nodes pass it over, and their images stay equal. Apache Kafka's
brokers do so, too; its controllers stop.

A publisher that fails in an unexpected way is reported and counted, and the others are told; the node goes on, as in
Apache Kafka. Partitions whose change was not taken up are few, and epochs fence what they do. It stops where the
publisher is the controller or decides who is authorized, since these must not act on former metadata, and where an
invariant is broken.

A node that finds a feature level or a record that it does not know stops (`NewerMetadataError`). If it went on, its
image would differ from those of the other nodes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from ...raft.messages.voter_messages import KRAFT_VERSION_FEATURE
from ...raft.snapshots.snapshot_writer import SnapshotContents
from ...raft.types import CommittedBatch, LeaderAndEpoch
from ...runtime.invariants import InvariantViolation
from ...security.sasl.scram_credential import MECHANISM_NUMBERS, ScramCredential
from ...wire.types import SnapshotId
from ..configs.recorded_values import complaint_about
from .features import FIXED_LEVELS, SUPPORTED_FEATURES, check_level_is_known
from .metadata_image import RECORD_VERSION_FEATURE, MetadataDelta, MetadataImage
from .metadata_records import (
    PLAIN_RECORDS,
    ConfigRecord,
    FeatureLevelRecord,
    MalformedRecordError,
    Record,
    decode_record,
)
from .metadata_snapshot import difference, snapshot_batches

MetadataPublisher: TypeAlias = Callable[[MetadataImage, MetadataDelta], None]
LeaderObserver: TypeAlias = Callable[[LeaderAndEpoch], None]
SnapshotSink: TypeAlias = Callable[[SnapshotContents], bool]


_logger = logging.getLogger("raftwerk.controller")


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    """When a snapshot is due: after so many bytes of new records, or so long after the last snapshot.

    `metadata.log.max.record.bytes.between.snapshots` and `metadata.log.max.snapshot.interval.ms` (0: bytes alone
    decide). Without new records no snapshot is made.
    """

    max_bytes: int = 20 * 1024 * 1024
    max_interval_ms: int = 60 * 60 * 1000

    def is_due(self, new_bytes: int, passed_ms: int) -> bool:
        """Whether a snapshot is due, with `new_bytes` committed in the `passed_ms` since the last snapshot."""
        return new_bytes >= self.max_bytes or 0 < self.max_interval_ms <= passed_ms


class MetadataLoader:
    """The quorum's listener on a node (`raft.types.RaftListener`): owns the committed image."""

    def __init__(
        self,
        cluster_id: str,
        snapshots: SnapshotPolicy = SnapshotPolicy(),
        supported_features: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES,
    ) -> None:
        self.image = MetadataImage(cluster_id)
        self.leader = LeaderAndEpoch(None, 0)
        self.load_errors = 0
        """Records of the metadata log and of snapshots that could not be read, and were passed over; for metrics."""
        self.apply_errors = 0
        """Changes that a publisher or an observer of the leader could not take up; for metrics."""
        self._policy = snapshots
        self.supported_features = supported_features
        self._record_level = supported_features.get(RECORD_VERSION_FEATURE, (0, PLAIN_RECORDS))[1]
        self._record_version_changed = False
        self._kraft_version: Callable[[], int] = lambda: 0
        self._snapshot_sink: SnapshotSink | None = None
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms: int | None = None
        self._restored: tuple[SnapshotId, MetadataImage] | None = None
        """The snapshot that is being loaded, and the image that its records make so far."""
        self._publishers: list[tuple[MetadataPublisher, bool]] = []
        self._leader_observers: list[tuple[LeaderObserver, bool]] = []

    def subscribe(self, publisher: MetadataPublisher, *, is_fatal: bool = False) -> None:
        """Call `publisher(image, delta)` after every commit. The delta is empty when only the offset moved.

        `is_fatal`: any exception of it ends the node.
        """
        self._publishers.append((publisher, is_fatal))

    def subscribe_leader(self, observer: LeaderObserver, *, is_fatal: bool = False) -> None:
        """Call `observer(leader)` after every change of the quorum's leader or epoch. `is_fatal` as in `subscribe`."""
        self._leader_observers.append((observer, is_fatal))

    def set_kraft_version_reader(self, read: Callable[[], int]) -> None:
        """Read the finalized `kraft.version` by `read` (`RaftDriver.kraft_version`)."""
        self._kraft_version = read

    @property
    def finalized_features(self) -> dict[str, int]:
        """The levels of all finalized features, with `kraft.version`, which the image does not have."""
        level = self._kraft_version()
        fixed = {name: level for name, level in FIXED_LEVELS.items() if name in self.supported_features}
        kraft = {KRAFT_VERSION_FEATURE: level} if level else {}
        return {**self.image.features, **kraft, **fixed}

    def find_scram_credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """The credential of a user for a mechanism such as SCRAM-SHA-512."""
        return self.image.scram_credentials.get((MECHANISM_NUMBERS[mechanism], user))

    def set_snapshot_sink(self, sink: SnapshotSink) -> None:
        """Give snapshots to `sink` (`RaftDriver.create_snapshot`). It returns False when it cannot take one now."""
        self._snapshot_sink = sink

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Replay the batches, then publish them as one delta."""
        delta = MetadataDelta()
        for batch in batches:
            is_first = not self.image.features
            for index, payload in enumerate(batch.records):
                offset = batch.base_offset + index
                record = self._decode(payload, f"record at offset {offset} of the metadata log")
                if record is None:
                    continue
                self.image.replay(record, offset, delta)
                # Up and down again within one commit is a change too: records between them have the other version.
                if isinstance(record, FeatureLevelRecord) and record.name == RECORD_VERSION_FEATURE:
                    self._record_version_changed = not is_first
            self.image.advance(batch.last_offset, batch.epoch)
            self._bytes_since_snapshot += batch.size_bytes if batch.records else 0
        self._publish(delta)
        if batches and self._snapshot_sink is not None and self._bytes_since_snapshot:
            self._snapshot_if_due(self._snapshot_sink, batches[-1].append_time_ms)

    def on_snapshot(self, snapshot_id: SnapshotId, records: Sequence[bytes] | None) -> None:
        """Load a part of a snapshot; None ends it. Then publish the difference to the image before it."""
        if self._restored is None or self._restored[0] != snapshot_id:
            self._restored = snapshot_id, MetadataImage(self.image.cluster_id)
        restored = self._restored[1]
        for payload in records or ():
            record = self._decode(payload, f"record of the metadata snapshot at offset {snapshot_id.end_offset}")
            if record is not None:
                restored.restore(record)
        if records is None:
            self._restored = None
            restored.advance(snapshot_id.end_offset - 1, snapshot_id.epoch)
            delta = difference(self.image, restored)
            self.image.take_over(restored)
            self._bytes_since_snapshot = 0
            self._record_version_changed = False
            self._publish(delta)

    def _decode(self, payload: bytes, what: str) -> Record | None:
        """The record, or None if it is to be passed over; that is logged."""
        try:
            record = decode_record(payload, self._record_level)
        except MalformedRecordError as error:
            self.load_errors += 1
            _logger.error("a %s cannot be read, and is passed over: %s", what, str(error)[:200])
            return None
        if isinstance(record, FeatureLevelRecord):
            check_level_is_known(self.supported_features, record)
        return record if _is_usable(record) else None

    def _publish(self, delta: MetadataDelta) -> None:
        for publisher, is_fatal in self._publishers:
            self._tell(partial(publisher, self.image, delta), is_fatal)

    def _tell(self, listener: Callable[[], None], is_fatal: bool) -> None:
        try:
            listener()
        except InvariantViolation:
            raise
        except Exception as error:
            if is_fatal:
                raise
            self.apply_errors += 1
            message = f"the metadata up to offset {self.image.offset} was not taken up everywhere on this node: {error}"
            asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})

    def _snapshot_if_due(self, sink: SnapshotSink, timestamp_ms: int) -> None:
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        if self._last_snapshot_ms is None:
            self._last_snapshot_ms = now_ms
        is_due = self._policy.is_due(self._bytes_since_snapshot, now_ms - self._last_snapshot_ms)
        if not is_due and not self._record_version_changed:
            return
        snapshot_id = SnapshotId(self.image.offset + 1, self.image.epoch)
        if sink(SnapshotContents(snapshot_id, timestamp_ms, snapshot_batches(self.image.copy()))):
            self._bytes_since_snapshot = 0
            self._record_version_changed = False
            self._last_snapshot_ms = now_ms

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Tell all observers."""
        self.leader = leader
        for observer, is_fatal in self._leader_observers:
            self._tell(partial(observer, leader), is_fatal)


def _is_usable(record: Record) -> bool:
    """Whether the record is to be replayed; if not, that is logged. Values are not, as they may be passwords."""
    if not isinstance(record, ConfigRecord):
        return True
    complaint = complaint_about(record)
    if complaint is not None:
        resource = f"resource {record.resource_name!r} of type {record.resource_type}"
        _logger.warning("the recorded value of %s of %s is passed over: %s", record.name, resource, complaint)
    return complaint is None
