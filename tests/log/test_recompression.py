"""Topics whose leader parses the records: another codec, or keys that are required."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.log.logs import NOW_MS, batch, headers_of, make_runtime, open_log, read_all
from support.wire.all_records import iter_all_records

from raftwerk.log.config import LogConfig
from raftwerk.log.validation import validate
from raftwerk.wire.compression import Compression
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.records import encode_batch, iter_records


@pytest.mark.parametrize("source", list(Compression))
@pytest.mark.parametrize("target", list(Compression))
def test_batches_are_recompressed_and_nothing_else_changes(source: Compression, target: Compression) -> None:
    log = open_log(make_runtime()[0], LogConfig(compression_type=target, compression_gzip_level=9))
    sent = batch(5, value=b"v" * 300, compression=source, producer_id=7, producer_epoch=1, base_sequence=0)
    before = bytes(sent)
    for _ in range(2):
        info = log.append_as_leader(memoryview(bytearray(before)), 3, NOW_MS)
        assert (info.first_offset, info.last_offset) == (0, 4)
    content = read_all(log)
    (header,) = headers_of(content)
    assert (header.compression, header.producer_id, header.base_sequence, header.record_count) == (target, 7, 0, 5)
    assert header.partition_leader_epoch == 3
    assert list(iter_records(content)) == list(iter_records(before))
    assert (content[61:] == before[61:]) == (source == target)


def test_compression_levels_are_used() -> None:
    data = memoryview(bytearray(encode_batch([(b"k", b"%d " % n * 50, (), 1000) for n in range(400)])))
    for codec, field, low, high in (
        ("gzip", "compression.gzip.level", "1", "9"),
        ("zstd", "compression.zstd.level", "1", "19"),
    ):
        sizes = [
            len(validate(data, LogConfig().with_overrides({"compression.type": codec, field: level}), NOW_MS))
            for level in (low, high)
        ]
        assert sizes[1] < sizes[0] < len(data)


def test_compacted_topics_refuse_records_without_a_key() -> None:
    log = open_log(make_runtime()[0], LogConfig(cleanup_policy=("compact",)))
    for codec in Compression:
        keyless = encode_batch([(b"k", b"v", (), 1000), (None, b"v", (), 1000)], compression=codec)
        with pytest.raises(ProtocolError) as refused:
            log.append_as_leader(memoryview(keyless), 0, NOW_MS)
        assert refused.value.code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0
    log.append_as_leader(batch(3), 0, NOW_MS)
    log.config = replace(log.config, cleanup_policy=("delete",))
    log.append_as_leader(memoryview(encode_batch([(None, b"v", (), 1000)])), 0, NOW_MS)
    assert log.log_end_offset == 4


def test_log_append_time_and_another_codec_together() -> None:
    config = LogConfig().with_overrides({"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"})
    log = open_log(make_runtime()[0], config)
    assert log.append_as_leader(batch(2), 0, NOW_MS).log_append_time_ms == NOW_MS
    assert [record.timestamp for _, record in iter_all_records(read_all(log))] == [NOW_MS] * 2


@given(st.data())
def test_damaged_batches_are_refused(data: st.DataObject) -> None:
    sent = bytearray(batch(3, compression=data.draw(st.sampled_from(list(Compression)))))
    at = data.draw(st.integers(8, len(sent) - 1))
    sent[at] ^= data.draw(st.integers(1, 255))
    del sent[data.draw(st.integers(1, len(sent))) :]
    codes: list[int | None] = []
    for config in (LogConfig(), LogConfig(compression_type=Compression.ZSTD, cleanup_policy=("compact",))):
        log = open_log(make_runtime()[0], config)
        try:
            log.append_as_leader(memoryview(bytearray(sent)), 0, NOW_MS)
            codes.append(None)
        except ProtocolError as error:
            codes.append(error.code)
    assert codes[0] == codes[1]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("compression.type", "brotli"),
        ("cleanup.policy", "shrink"),
        ("retention.ms", "-2"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "x"),
        ("delete.retention.ms", "-1"),
    ],
)
def test_bad_settings_are_refused(key: str, value: str) -> None:
    with pytest.raises(ProtocolError, match=key):
        LogConfig().with_overrides({key: value})


def test_settings_by_their_kafka_names() -> None:
    config = LogConfig().with_overrides(
        {
            "cleanup.policy": "delete, compact",
            "compression.type": "uncompressed",
            "retention.ms": "-1",
            "retention.bytes": "5",
            "min.insync.replicas": "2",
        }
    )
    assert (config.cleanup_policy, config.compression_type) == (("compact", "delete"), Compression.NONE)
    assert (config.retention_ms, config.retention_bytes) == (-1, 5)
