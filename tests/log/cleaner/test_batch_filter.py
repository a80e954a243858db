"""Batches that are written again with some of their records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raftwerk.log.cleaner.batch_filter import batch_body, delete_horizon_ms, raw_records, rebuild
from raftwerk.wire.compression import Compression
from raftwerk.wire.records import encode_batch, iter_records, read_header, read_valid_header

NOW_MS = 1_700_000_000_000


@given(
    st.lists(st.tuples(st.integers(-(1 << 30), 1 << 30) | st.integers(-200, 200), st.booleans()), min_size=1),
    st.integers(0, 1 << 40) | st.integers(NOW_MS - 10_000, NOW_MS + 10_000) | st.none(),
    st.sampled_from(Compression),
)
def test_the_records_that_stay_are_the_same_whatever_the_delete_horizon_is(
    records: list[tuple[int, bool]], horizon_ms: int | None, codec: Compression
) -> None:
    """The horizon takes the place of the base timestamp, to which the timestamps of the records are relative."""
    sent = [(b"k%d" % number, None, (("h", b"x"),), NOW_MS + delta) for number, (delta, _) in enumerate(records)]
    batch = memoryview(encode_batch(sent, compression=codec))
    header = read_header(batch)
    body = batch_body(batch, header)
    kept = [raw for raw, (_, stays) in zip(raw_records(body, len(records)), records, strict=True) if stays]
    if not kept:
        return
    rebuilt, data = rebuild(header, body, kept, horizon_ms)
    assert read_valid_header(memoryview(data), 0) == rebuilt
    expected = [record for record, (_, stays) in zip(iter_records(batch), records, strict=True) if stays]
    assert list(iter_records(memoryview(data))) == expected
    rebuilt_body = batch_body(memoryview(data), rebuilt)
    for raw in raw_records(rebuilt_body, rebuilt.record_count):
        attributes_at = raw.start + 1
        while rebuilt_body[attributes_at - 1] & 0x80:  # the length of the record goes on
            attributes_at += 1
        assert rebuilt_body[attributes_at] == 0
    assert delete_horizon_ms(rebuilt) == horizon_ms
    assert rebuilt.max_timestamp == max(record.timestamp for record in expected)
