"""The producer's partitioner and batches, the bootstrap list, and the verdict of the demo."""

from __future__ import annotations

import pytest

from raftwerk.cluster.client.access.bootstrap import parse_bootstrap
from raftwerk.cluster.client.client_errors import ClientError, is_retriable
from raftwerk.cluster.client.producer import BATCH_BYTES, _split, murmur2
from raftwerk.cluster.local.demo import AckLog, Flight, judge
from raftwerk.wire.errors import error_name
from raftwerk.wire.records import NewRecord


def test_murmur2_as_kafkas_clients() -> None:
    """The values of the Java client's own test, where they are signed 32-bit numbers."""
    cases = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: murmur2(key) for key in cases} == {key: value & 0xFFFFFFFF for key, value in cases.items()}


def test_bootstrap() -> None:
    assert parse_bootstrap("a:1, [::1]:2") == parse_bootstrap("a:1,[::1]:2, ") == [("a", 1), ("::1", 2)]
    for wrong in ("", "a:", ":1", "a:b", ",", "a:1,,b:2"):
        with pytest.raises(ClientError, match="is not host:port"):
            parse_bootstrap(wrong)


def test_error_names() -> None:
    assert error_name(36) == "TOPIC_ALREADY_EXISTS"
    assert error_name(999) == "error 999"
    assert is_retriable(6)
    assert not is_retriable(36)


def test_batches_are_cut_by_size() -> None:
    records = [NewRecord(None, b"x" * (BATCH_BYTES // 2), (), 0)] * 5
    assert [len(group) for group in _split(records)] == [2, 2, 1]
    assert list(_split([])) == []


def flight(number: int, key: bytes) -> Flight:
    return Flight(number, key, b"%d,row" % number)


FLIGHTS = [flight(0, b"a"), flight(1, b"b"), flight(2, b"a"), flight(3, b"b")]


def acks(*numbers: int) -> AckLog:
    log = AckLog()
    for position, number in enumerate(numbers):
        log.on_ack(number, 0, now=float(position))
    return log


def test_a_clean_run() -> None:
    verdict = judge(FLIGHTS, acks(0, 1, 2, 3), {0: [b"0,row", b"2,row"], 1: [b"1,row", b"3,row"]}, (6, 6))
    assert verdict.clean
    assert (verdict.read, verdict.longest_gap_s) == (4, 1.0)


def test_lost_doubled_swapped_and_changed_records_are_counted() -> None:
    verdict = judge(FLIGHTS, acks(0, 1, 2, 3), {0: [b"2,row", b"0,row", b"0,row"], 1: [b"1,wor"]}, (6, 6))
    assert not verdict.clean
    assert (verdict.lost, verdict.duplicated, verdict.out_of_order, verdict.changed) == (1, 1, 2, 1)


def test_what_is_not_acked_or_not_in_sync_is_not_clean() -> None:
    read = {0: [b"0,row", b"2,row"], 1: [b"1,row", b"3,row"]}
    assert not judge(FLIGHTS, acks(0, 1, 2), read, (6, 6)).clean
    assert not judge(FLIGHTS, acks(0, 1, 2, 3), read, (5, 6)).clean


def test_the_longest_gap_is_that_of_one_partition() -> None:
    log = AckLog()
    for partition, now in ((0, 1.0), (1, 1.1), (1, 1.2), (0, 1.9), (1, 2.0), (0, 2.1)):
        log.on_ack(int(now * 10), partition, now)
    assert round(log.longest_gap_s, 3) == 0.9
