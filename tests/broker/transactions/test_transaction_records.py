"""Records of `__transaction_state`, to the byte.

The bytes were written by TransactionLogKey and TransactionLogValue of Apache Kafka 4.2.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.broker.coordinators.record_fields import BadRecord
from raftwerk.broker.transactions.transaction_metadata import (
    EPOCH_MAX,
    TransactionMetadata,
    TransactionState,
)
from raftwerk.broker.transactions.transaction_records import decode_key, decode_value, transaction_record
from raftwerk.wire.types import TopicPartition

BASE = TransactionMetadata(4000, 7, 60_000, start_ms=1_700_000_000_100, last_update_ms=1_700_000_000_123)
FLIGHTS = frozenset({TopicPartition("flights", 0)})
ONGOING = BASE._replace(
    state=TransactionState.ONGOING,
    partitions=FLIGHTS | {TopicPartition("flights", 5), TopicPartition("hotels", 2)},
)
ENDING = BASE._replace(
    state=TransactionState.PREPARE_COMMIT,
    partitions=FLIGHTS,
    previous_producer_id=3000,
    next_producer_id=5000,
    client_version=2,
)
WRITTEN = [
    (BASE._replace(start_ms=-1), 0, "00000000000000000fa000070000ea6000ffffffff0000018bcfe5687bffffffffffffffff"),
    (
        ONGOING,
        0,
        "00000000000000000fa000070000ea6001000000020007666c69676874730000000200000000000000050006686f74656c730000"
        "0001000000020000018bcfe5687b0000018bcfe56864",
    ),
    (
        BASE._replace(state=TransactionState.COMPLETE_COMMIT),
        0,
        "00000000000000000fa000070000ea6004000000000000018bcfe5687b0000018bcfe56864",
    ),
    (BASE._replace(start_ms=-1), 1, "00010000000000000fa000070000ea6000000000018bcfe5687bffffffffffffffff00"),
    (
        ONGOING,
        1,
        "00010000000000000fa000070000ea60010308666c69676874730300000000000000050007686f74656c7302000000020000"
        "00018bcfe5687b0000018bcfe5686400",
    ),
    (
        BASE._replace(state=TransactionState.COMPLETE_COMMIT),
        2,
        "00010000000000000fa000070000ea6004010000018bcfe5687b0000018bcfe5686400",
    ),
    (
        ENDING,
        2,
        "00010000000000000fa000070000ea60020208666c69676874730200000000000000018bcfe5687b0000018bcfe568640300"
        "080000000000000bb80108000000000000138802020002",
    ),
    (
        ENDING._replace(previous_producer_id=-1, next_producer_epoch=9),
        2,
        "00010000000000000fa000070000ea60020208666c69676874730200000000000000018bcfe5687b0000018bcfe5686403010800"
        "000000000013880202000203020009",
    ),
]


def test_the_key_is_that_of_apache_kafka() -> None:
    record = transaction_record("transfers-é", None, 2)
    assert (record.key.hex(), record.value) == ("0000000c7472616e73666572732dc3a9", None)
    assert decode_key(record.key) == "transfers-é"
    assert decode_key(b"\x00\x01\x00\x00") is None


@pytest.mark.parametrize(("value", "level", "written"), WRITTEN)
def test_values_are_those_of_apache_kafka(value: TransactionMetadata, level: int, written: str) -> None:
    record = transaction_record("t", value, level)
    assert record.value is not None
    assert record.value.hex() == written
    assert decode_value(record.value) == value


IDS = st.integers(0, 2**63 - 1)
PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "ü" * 200]), st.integers(0, 2**31 - 1))
VALUES = st.builds(
    TransactionMetadata,
    IDS,
    st.integers(0, EPOCH_MAX - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([state for state in TransactionState if state < TransactionState.DEAD]),
    st.frozensets(PARTITIONS, max_size=5),
    st.integers(-1, 2**40),
    st.integers(-1, 2**40),
    st.one_of(st.just(-1), IDS),
    st.one_of(st.just(-1), IDS),
    st.integers(0, 2),
    st.just(-1),
    st.integers(-1, EPOCH_MAX - 1),
)


@given(VALUES)
def test_what_is_written_is_read(value: TransactionMetadata) -> None:
    if value.state is TransactionState.EMPTY:
        value = value._replace(partitions=frozenset())
    if value.state.is_idle or value.next_producer_id < 0:
        value = value._replace(next_producer_epoch=-1)
    compact, plain = transaction_record("t", value, 1).value, transaction_record("t", value, 0).value
    assert compact is not None
    assert plain is not None
    assert decode_value(compact) == value
    without_tags = value._replace(previous_producer_id=-1, next_producer_id=-1, client_version=0)
    assert decode_value(plain) == (value if value.is_kept else without_tags)


@given(st.sampled_from([bytes.fromhex(written) for _, _, written in WRITTEN]), st.data())
def test_damaged_values_are_refused(value: bytes, data: st.DataObject) -> None:
    """Nothing but `BadRecord` comes out, and what is read can be written again."""
    at = data.draw(st.integers(0, len(value) - 1))
    cut = data.draw(st.booleans())
    damaged = value[:at] if cut else value[:at] + bytes([data.draw(st.integers(0, 255))]) + value[at + 1 :]
    try:
        found = decode_value(damaged)
    except BadRecord:
        return
    assert transaction_record("t", found, 1).value is not None


def test_the_highest_epoch_has_no_open_transaction() -> None:
    """It belongs to no producer. Were such a transaction taken, its end would need a higher epoch."""
    for value in (ONGOING._replace(producer_epoch=EPOCH_MAX), ONGOING.kept(9, EPOCH_MAX, 1, 1)):
        record = transaction_record("t", value, 1)
        assert record.value is not None
        with pytest.raises(BadRecord):
            decode_value(record.value)


@pytest.mark.parametrize("number", [6, 7, 8, -1])
def test_states_that_are_never_recorded_are_refused(number: int) -> None:
    raw = bytearray.fromhex(WRITTEN[0][2])
    raw[16] = number & 0xFF
    with pytest.raises(BadRecord):
        decode_value(bytes(raw))
