"""A replay reads all that is sound of a log, whatever is damaged."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.log.logs import append, batch, headers_of, make_runtime, open_log, read_all

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.log.config import LogConfig
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.recovery import log_replay
from raftwerk.log.recovery.log_replay import LogReplay
from raftwerk.log.segment.segment import Segment
from raftwerk.runtime.incremental_work import run_at_once
from raftwerk.wire.records import LOG_OVERHEAD, BatchHeader


def filled(batches: int = 20) -> tuple[SimDisk, PartitionLog]:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for number in range(batches):
        append(log, 1 + number % 3)
    assert len(log.segments) > 1
    return disk, log


def replayed(replay: LogReplay) -> tuple[list[BatchHeader], int]:
    """The headers of all batches that are read, and how often it met damage."""
    headers: list[BatchHeader] = []
    damaged = 0
    while not replay.is_at_end:
        before = replay.offset
        headers += headers_of(bytes(replay.read()))
        if replay.damage is not None:
            damaged += 1
            assert replay.damage.offset == before
            run_at_once(replay.passing_damage())
        assert replay.offset > before or replay.is_at_end
    return headers, damaged


def test_a_sound_log() -> None:
    _, log = filled()
    assert replayed(log.replay()) == (headers_of(read_all(log)), 0)


def test_from_an_offset_within_a_segment() -> None:
    _, log = filled()
    headers = headers_of(read_all(log))
    replay = LogReplay(lambda: log.segments, headers[3].base_offset, headers[9].base_offset)
    assert replayed(replay) == (headers[3:9], 0)


@pytest.mark.parametrize("at", range(4))
def test_every_flipped_byte(at: int) -> None:
    """At most the damaged batch is missing, and where a greater offset is damaged, those that it names."""
    disk, log = filled()
    whole = headers_of(read_all(log))
    segment = log.segments[0]
    inside = [header for header in whole if header.base_offset < segment.next_offset]
    ends = [sum(header.size_bytes for header in inside[: number + 1]) for number in range(len(inside))]
    for position in range(at, segment.size_bytes, 4):
        disk.flip_bit(segment.file.path, position, position % 8)
        hit = next(number for number, end in enumerate(ends) if position < end)
        within = position - (ends[hit] - inside[hit].size_bytes)
        headers, damaged = replayed(log.replay())
        others = [header for number, header in enumerate(whole) if number != hit]
        if within >= 16 or 8 <= within < 12:
            assert (headers, damaged) == (others, 1), position
        elif within < 8:
            assert headers[-len(whole) + len(inside) :] == whole[len(inside) :]
        disk.flip_bit(segment.file.path, position, position % 8)


def test_a_large_piece_of_the_file_is_lost() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime, LogConfig())
    for _ in range(30):
        append(log, 2)
    headers = headers_of(read_all(log))
    segment = log.segments[0]
    sizes = headers[0].size_bytes
    disk.open(segment.file.path).pwrite(sizes + 20, b"\x02" * (3 * sizes))
    found, damaged = replayed(log.replay())
    assert damaged == 1
    assert found == headers[:1] + headers[5:]


@pytest.mark.parametrize("whole", [False, True])
def test_the_end_of_a_file_is_lost(whole: bool) -> None:
    """Within a batch, or with a whole one: then there is nothing at all where the next batch was to come."""
    disk, log = filled()
    first = log.segments[0]
    headers = headers_of(read_all(log))
    last = [header for header in headers if header.base_offset < first.next_offset][-1]
    disk.open(first.file.path).truncate(first.size_bytes - (last.size_bytes if whole else 30))
    found, damaged = replayed(log.replay())
    assert damaged == 1
    assert found == [header for header in headers if header != last]


def test_a_segment_that_is_replaced_meanwhile() -> None:
    _, log = filled()
    headers = headers_of(read_all(log))
    segments = [list(log.segments)]
    replay = LogReplay(lambda: segments[0], 0, log.log_end_offset)
    found = headers_of(bytes(replay.read()))
    segments[0] = [type(one).open(one._disk, log.directory, one.base_offset) for one in segments[0]]
    for copy, original in zip(segments[0], log.segments, strict=True):
        copy.next_offset = original.next_offset
    rest, damaged = replayed(replay)
    assert (found + rest, damaged) == (headers, 0)


def test_damage_before_the_offset_where_a_replay_begins_is_where_it_begins() -> None:
    """What comes before is not asked for: nobody has to mend it for this replay."""
    disk, log = filled()
    headers = headers_of(read_all(log))
    disk.flip_bit(log.segments[0].file.path, 30, 1)
    start = headers[3].base_offset
    replay = LogReplay(lambda: log.segments, start, log.log_end_offset)
    assert not replay.read()
    assert replay.damage is not None and replay.damage.offset == start
    run_at_once(replay.passing_damage())
    assert replayed(replay) == (headers[3:], 0)


@pytest.mark.parametrize("piece_bytes", [100, 450, log_replay.PIECE_BYTES])
def test_offsets_that_are_missing_at_the_end_of_a_segment_are_passed_over(
    piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Kafka's compaction may have removed them."""
    monkeypatch.setattr(log_replay, "PIECE_BYTES", piece_bytes)
    _, log = filled()
    headers = headers_of(read_all(log))
    first = log.segments[0]
    inside = [header for header in headers if header.base_offset < first.next_offset]
    first.size_bytes -= inside[-1].size_bytes
    assert replayed(log.replay()) == ([header for header in headers if header != inside[-1]], 0)


@pytest.mark.parametrize("wrong", ["that of a batch before", "beyond the segment"])
def test_a_batch_whose_offset_contradicts_its_place_is_damaged(wrong: str) -> None:
    """No CRC covers it. State that is rebuilt would know the records by a wrong offset, or twice."""
    disk, log = filled()
    headers = headers_of(read_all(log))
    first = log.segments[0]
    inside = [header for header in headers if header.base_offset < first.next_offset]
    hit, offset = (2, inside[1].base_offset) if wrong == "that of a batch before" else (-1, inside[-1].base_offset + 1)
    assert wrong != "beyond the segment" or offset + inside[-1].last_offset_delta == first.next_offset
    position = sum(header.size_bytes for header in inside[:hit])
    disk.open(first.file.path).pwrite(position, offset.to_bytes(8, "big"))
    assert replayed(log.replay()) == ([header for header in headers if header != inside[hit]], 1)


def test_a_segment_does_not_begin_with_offsets_of_the_one_before_that_are_damaged_there() -> None:
    disk, log = filled()
    headers = headers_of(read_all(log))
    first, second = log.segments[:2]
    last = [header for header in headers if header.base_offset < first.next_offset][-1]
    disk.flip_bit(first.file.path, first.size_bytes - 1, 0)
    disk.open(second.file.path).pwrite(0, last.base_offset.to_bytes(8, "big"))
    left = [header for header in headers if header.base_offset not in (last.base_offset, second.base_offset)]
    assert replayed(log.replay()) == (left, 2)


def test_a_replay_ends_where_its_last_offset_was_compacted_away() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for _ in range(5):
        append(log)
    content, headers = read_all(log), headers_of(read_all(log))
    log.close()
    size_bytes = headers[0].size_bytes
    disk.write_atomic(log.segments[0].file.path, content[: 2 * size_bytes] + content[3 * size_bytes :])
    log = open_log(runtime)
    replay = LogReplay(lambda: log.segments, 0, 3)
    assert replayed(replay) == (headers[:2], 0) and replay.offset == 3


def test_at_the_end_there_is_nothing_to_read() -> None:
    _, log = filled()
    replay = LogReplay(lambda: log.segments, log.log_end_offset, log.log_end_offset)
    assert replay.is_at_end and bytes(replay.read()) == b"" and replay.damage is None
    without = LogReplay(list, 0, log.log_end_offset)
    run_at_once(without.passing_damage())
    assert bytes(without.read()) == b"" and without.damage is None, "a log that is closed has no segments"


def test_a_segment_that_is_mended_while_a_sound_batch_is_looked_for_is_read_again() -> None:
    """What was looked for is not in the new file at that position, and nothing of it is to be passed over."""
    disk, log = filled()
    headers = headers_of(read_all(log))
    segments = list(log.segments)
    replay = LogReplay(lambda: segments, 0, log.log_end_offset)
    path = segments[0].file.path
    whole = disk.read_bytes(path)
    disk.open(path).pwrite(8, b"\xff" * 20)
    assert not replay.read() and replay.damage is not None
    search = replay.passing_damage()
    next(search)
    disk.open(path).pwrite(0, whole)
    mended = Segment.open(disk, log.directory, 0)
    mended.next_offset, segments[0] = segments[0].next_offset, mended
    assert list(search) == []
    assert replayed(replay) == (headers, 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1400), st.binary(min_size=1, max_size=40)), max_size=6))
def test_whatever_is_written_over_it(damages: list[tuple[int, int, bytes]]) -> None:
    """What is read was in the log, in its order, unless an offset was overwritten, which no CRC covers."""
    disk, log = filled()
    bodies = {bytes(one) for one in split(read_all(log))}
    for segment, position, data in damages:
        path = log.segments[segment].file.path
        disk.open(path).pwrite(min(position, log.segments[segment].size_bytes - len(data)), data)
    replay = log.replay()
    last = -1
    while not replay.is_at_end:
        piece = bytes(replay.read())
        for header, body in zip(headers_of(piece), split(piece), strict=True):
            assert body in bodies and header.base_offset > last
            last = header.last_offset
        if replay.damage is not None:
            run_at_once(replay.passing_damage())


def split(data: bytes) -> list[bytes]:
    """What the CRC covers of each batch."""
    parts, at = [], 0
    for header in headers_of(data):
        parts.append(data[at + LOG_OVERHEAD + 9 : at + header.size_bytes])
        at += header.size_bytes
    return parts


def test_a_batch_larger_than_a_piece() -> None:
    runtime, _ = make_runtime()
    log = open_log(runtime)
    log.append_as_leader(batch(1, value=bytes(100_000)), 0, 0)
    append(log)
    assert replayed(log.replay()) == (headers_of(read_all(log)), 0)
