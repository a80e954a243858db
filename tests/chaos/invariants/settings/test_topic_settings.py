"""What the simulator checks of topics whose own settings change: losses, offsets by time, what producers hear."""

from __future__ import annotations

from typing import Any

import pytest
from support.log.logs import make_runtime, open_log

from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.sim.invariants.settings.known_records import KnownBatch, KnownRecords
from raftwerk.chaos.sim.invariants.settings.log_losses import Loss, check_start, resume_view, view_appended
from raftwerk.chaos.sim.invariants.settings.settings_seen import SettingsSeen, TopicSettings
from raftwerk.chaos.sim.invariants.settings.time_lookups import check_answer
from raftwerk.chaos.sim.invariants.settings.told_producers import Told, check_told
from raftwerk.log.config import LogConfig
from raftwerk.wire.records import TimestampType, encode_batch, iter_headers, set_base_offset

SETTINGS = TopicSettings.of({"cleanup.policy": "compact,delete", "min.compaction.lag.ms": "200", "retention.ms": "500"})
TIMES = (1_000, 1_300, 1_100)


def known_of(times: tuple[int, ...] = TIMES, **options: Any) -> tuple[KnownRecords, list[bytes]]:
    known, batches = KnownRecords(), []
    for offset, time in enumerate(times):
        batch = encode_batch([(b"k", b"%d" % offset, (), time)], leader_epoch=2, **options)
        set_base_offset(batch, 0, offset)
        batches.append(bytes(batch))
        known.add(next(iter_headers(batch))[1], batches[-1])
    return known, batches


def test_the_settings_of_some_moments_before() -> None:
    seen = SettingsSeen()
    first, second = TopicSettings.of({}), SETTINGS
    for time_s, settings in ((0.0, first), (1.0, first), (2.0, second)):
        seen.take(time_s, settings)
    assert (seen.present, seen.least_lag_ms) == (second, 0)
    assert seen.since(2.5) == [second]
    assert seen.since(1.9) == [second, first]


@pytest.mark.parametrize(
    ("asked_ms", "answer"),
    [(1_001, (1_300, 1)), (1_000, (1_000, 0)), (1_301, (-1, -1)), (-3, (1_300, 1)), (-3, (-1, -1))],
)
def test_the_first_record_that_is_not_older(asked_ms: int, answer: tuple[int, int]) -> None:
    check_answer("t", known_of()[0], asked_ms, answer, (2, 3))


@pytest.mark.parametrize(
    ("asked_ms", "answer"),
    [(1_001, (1_100, 2)), (1_001, (1_000, 0)), (1_001, (-1, -1)), (1_001, (1_301, 1)), (1_400, (1_400, 3))],
)
def test_another_record_is_told(asked_ms: int, answer: tuple[int, int]) -> None:
    with pytest.raises(InvariantBroken, match="a time finds the first record that is not older"):
        check_answer("t", known_of()[0], asked_ms, answer, (2, 3))


def test_what_is_removed_or_not_known_to_the_leader_may_be_passed_over() -> None:
    known, _ = known_of()
    check_answer("t", known, 1_001, (-1, -1), (1, 3))
    check_answer("t", known, 1_001, (-1, -1), (2, 1))
    known.removed[1] = None
    check_answer("t", known, 1_001, (1_100, 2), (2, 3))
    known.start_offset = 3
    check_answer("t", known, 1_001, (-1, -1), (2, 3))


@pytest.mark.parametrize(
    ("wall_ms", "settings", "committed"),
    [(1_800, SETTINGS, 3), (9_000, SETTINGS._replace(policies=("compact",)), 3), (9_000, SETTINGS, 1)],
    ids=["too young", "not deleted", "not committed"],
)
def test_a_log_that_begins_too_late_is_told(wall_ms: int, settings: TopicSettings, committed: int) -> None:
    known, batches = known_of()
    log = open_log(make_runtime()[0])
    for batch in batches:
        log.append_as_follower(memoryview(bytearray(batch)))
    view = resume_view(log, known, "t-0 on 1")
    log.raise_start(2)
    check_start(view, Loss("t-0 on 1", known, 1_801, [SETTINGS], 200))
    assert known.start_offset == 2
    known.start_offset, known.end_offset, view.start_offset = 0, committed, 0
    with pytest.raises(InvariantBroken, match="a log begins later only where its policy deletes"):
        check_start(view, Loss("t-0 on 1", known, wall_ms, [settings], 200))


def test_a_copy_without_a_record_that_nobody_removed_is_told() -> None:
    known, batches = known_of()
    log = open_log(make_runtime()[0], LogConfig(cleanup_policy=("compact",)))
    log.append_as_follower(memoryview(bytearray(batches[0])))
    view = resume_view(log, known, "t-0 on 1")
    log.append_as_follower(memoryview(bytearray(batches[2])), may_skip=True)
    appended = [(next(iter_headers(batches[2]))[1], batches[2])]
    with pytest.raises(InvariantBroken, match="a copy of a log lacks only what was removed: t-0 on 1: 1 is not"):
        view_appended(view, known, appended, "t-0 on 1")
    known.removed[1] = None
    view_appended(view, known, appended, "t-0 on 1")
    assert list(view.missing) == [1]


def test_a_producer_is_told_what_is_stored() -> None:
    known, batches = known_of(timestamp_type=TimestampType.LOG_APPEND_TIME)
    known.batches[0] = known.batches[0]._replace(appended_s=2.0)
    assert isinstance(known.batches[0], KnownBatch)
    check_told(known, Told("p", 0, 1_000), batches[0], (1.0, 3.0))
    for told, times_s in (
        (Told("p", 0, -1), (1.0, 3.0)),
        (Told("p", 0, 1_001), (1.0, 3.0)),
        (Told("p", 0, 1_000), (2.5, 3.0)),
        (Told("p", 5, 1_000), (1.0, 3.0)),
    ):
        with pytest.raises(InvariantBroken, match="a producer is told the time that is stored"):
            check_told(known, told, batches[0], times_s)
    with pytest.raises(InvariantBroken, match="a producer is told the time that is stored"):
        check_told(known, Told("p", 0, -1), batches[0], (1.0, 2.4), is_compacted=True)
    check_told(known, Told("p", 0, -1), batches[0], (1.0, 2.6), is_compacted=True)
    with pytest.raises(InvariantBroken, match="a record is stored as it was sent"):
        check_told(known, Told("p", 0, 1_000), batches[1], (1.0, 3.0))
    known.batches[0] = known.batches[0]._replace(is_codec_kept=True, codec=3)
    with pytest.raises(InvariantBroken, match=r"a record is stored as it was sent: .* codec 0"):
        check_told(known, Told("p", 0, 1_000), batches[0], (1.0, 3.0))
