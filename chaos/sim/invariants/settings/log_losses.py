"""What a log gives up is allowed by the topic's settings: `cleanup.policy` and the times that go with it.

Compaction: "compaction removes what is superseded and old enough": a record goes when a later one of its key is
committed, and both are older than `min.compaction.lag.ms`; or when it is a tombstone whose delete horizon has passed.
"a tombstone stays for delete.retention.ms" since it was first compacted, which is later than that lag. What stays is
as it was: "compaction leaves records as they were", with their timestamps and headers, and the greatest timestamp of a
batch is that of a record which is left in it.

Retention: "a log begins later only where its policy deletes": what goes is older than `retention.ms`, unless another
replica has begun there before. And "a copy of a log lacks only what was removed", when it was fetched or read again.

Each replica is judged by its own clock and by the metadata that it has applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .....log.cleaner.batch_filter import delete_horizon_ms
from .....log.partition_log import PartitionLog
from .....log.segment.segment import Segment
from .....wire.records import BatchHeader, Record, iter_records
from ..invariant_broken import InvariantBroken
from ..transactions.leader_log import batches_of
from .known_records import KnownRecords
from .settings_seen import TopicSettings


@dataclass(slots=True)
class LogView:
    """A replica's log as it was after the last event."""

    log: PartitionLog
    history: int
    start_offset: int
    end_offset: int
    segments: list[Segment]
    missing: dict[int, None] = field(default_factory=dict)
    """The offsets of records that it does not have, from its start on."""
    horizons: dict[int, int] = field(default_factory=dict)
    """From when on tombstones may be removed, by their offsets."""


@dataclass(frozen=True, slots=True)
class Loss:
    """When a log was looked at: its node's clock, and the settings of some moments before, the present ones first."""

    where: str
    known: KnownRecords
    wall_ms: int
    settings: Sequence[TopicSettings]
    least_lag_ms: int
    """The smallest `min.compaction.lag.ms` that the node has had: a record may have been compacted then."""


def resume_view(log: PartitionLog, known: KnownRecords, where: str) -> LogView:
    """A log that was opened, or cut, or made anew. Raises `InvariantBroken`."""
    view = LogView(log, log.history, 0, log.log_start_offset, list(log.segments))
    view_appended(view, known, list(batches_of(log, log.log_start_offset, log.log_end_offset)), where)
    return view


def view_appended(view: LogView, known: KnownRecords, batches: Sequence[tuple[BatchHeader, bytes]], where: str) -> None:
    """The log has grown by these batches. Raises `InvariantBroken`."""
    start, end = view.end_offset, batches[-1][0].next_offset if batches else view.end_offset
    present: dict[int, None] = {}
    for header, batch in batches:
        _note_present(header, batch, present, view.horizons)
    for offset in known.missing(present, start, end):
        if offset not in known.removed:
            detail = f"{where}: {offset} is not among {start} to {end}, {known.records[offset]}"
            raise InvariantBroken("a copy of a log lacks only what was removed", detail)
        view.missing[offset] = None
    view.end_offset = view.log.log_end_offset


def view_replaced(view: LogView, loss: Loss) -> None:
    """Segments have come in the place of others, or were added or deleted. Raises `InvariantBroken`."""
    log, known = view.log, loss.known
    for segment in log.segments[:-1]:
        if any(segment is one for one in view.segments):
            continue
        present: dict[int, None] = {}
        for header, batch in batches_of(log, segment.base_offset, segment.next_offset):
            former = dict(view.horizons)
            records = _note_present(header, batch, present, view.horizons)
            greatest_ms = max((record.timestamp for record in records), default=header.max_timestamp)
            if header.max_timestamp != greatest_ms:
                detail = f"{loss.where}: {header.base_offset} claims {header.max_timestamp}, not {greatest_ms}"
                raise InvariantBroken("compaction leaves records as they were", detail)
            for record in records:
                _check_unchanged(loss, record)
                if view.horizons.get(record.offset) != former.get(record.offset):
                    _check_horizon(loss, record, view.horizons[record.offset])
        start = max(segment.base_offset, log.log_start_offset)
        for offset in known.missing(present, start, segment.next_offset):
            if offset not in view.missing:
                _check_removed(view, loss, offset)
                view.missing[offset] = known.removed[offset] = None
    view.segments = list(log.segments)


def check_start(view: LogView, loss: Loss) -> None:
    """The start of a log has moved. Raises `InvariantBroken`."""
    known = loss.known
    before, now = max(view.start_offset, known.start_offset), view.log.log_start_offset
    view.start_offset = now
    if now <= before:
        return
    name = "a log begins later only where its policy deletes"
    where, settings = f"{loss.where}: from {before} to {now}", loss.settings[0]
    if "delete" not in settings.policies or settings.retention_ms < 0:
        raise InvariantBroken(name, f"{where} by {settings}")
    if now > known.end_offset:
        raise InvariantBroken(name, f"{where}, committed up to {known.end_offset}")
    for offset in range(before, now):
        record = known.records.get(offset)
        if record is None or offset in view.missing:
            continue
        age_ms = loss.wall_ms - record.timestamp
        if age_ms <= settings.retention_ms:
            raise InvariantBroken(name, f"{where}: {offset} is {age_ms} ms old, by {settings}")
    known.start_offset = now


def _note_present(
    header: BatchHeader, batch: bytes, present: dict[int, None], horizons: dict[int, int]
) -> list[Record]:
    records, horizon_ms = list(iter_records(batch)), delete_horizon_ms(header)
    for record in records:
        present[record.offset] = None
        if record.value is None and horizon_ms is not None:
            horizons[record.offset] = horizon_ms
    return records


def _check_unchanged(loss: Loss, record: Record) -> None:
    known = loss.known.records.get(record.offset)
    found = record._replace(key=bytes(record.key or b""), value=None if record.value is None else bytes(record.value))
    if known is not None and found != known:
        raise InvariantBroken("compaction leaves records as they were", f"{loss.where}: {found}, was {known}")


def _check_horizon(loss: Loss, record: Record, horizon_ms: int) -> None:
    least_ms = record.timestamp + min(one.min_lag_ms + one.delete_retention_ms for one in loss.settings)
    most_ms = loss.wall_ms + max(one.delete_retention_ms for one in loss.settings)
    if not least_ms <= horizon_ms <= most_ms:
        detail = f"{loss.where}: {record} until {horizon_ms}, not {least_ms} to {most_ms}"
        raise InvariantBroken("a tombstone stays for delete.retention.ms", detail)


def _check_removed(view: LogView, loss: Loss, offset: int) -> None:
    known, record = loss.known, loss.known.records[offset]
    if not any("compact" in one.policies for one in loss.settings):
        detail = f"{loss.where}: {record} by {loss.settings[0]}"
        raise InvariantBroken("compaction removes what is superseded and old enough", detail)
    newest_ms = loss.wall_ms - min(one.min_lag_ms for one in loss.settings)
    later = known.superseded_by(offset)
    is_old = record.timestamp <= loss.wall_ms - loss.least_lag_ms
    if is_old and any(one.timestamp <= newest_ms for one in later):
        return
    horizon_ms = view.horizons.get(offset)
    if record.value is None and horizon_ms is not None:
        if loss.wall_ms < horizon_ms:
            detail = f"{loss.where}: {record} is gone {horizon_ms - loss.wall_ms} ms before its time"
            raise InvariantBroken("a tombstone stays for delete.retention.ms", detail)
        return
    if record.value is None and not later:
        raise InvariantBroken("a tombstone stays for delete.retention.ms", f"{loss.where}: {record} has no horizon")
    detail = f"{loss.where} at {loss.wall_ms}: {record} by {loss.settings}, later ones are {later}"
    raise InvariantBroken("compaction removes what is superseded and old enough", detail)
