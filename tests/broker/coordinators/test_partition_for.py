"""The partition of a key, against Java's definition of the hash of a text."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from raftwerk.broker.coordinators.partition_for import java_string_hash, partition_for


def plain_hash(text: str) -> int:
    """s[0] * 31^(n-1) + ... + s[n-1] over the UTF-16 units, in 32 bits with a sign."""
    raw = text.encode("utf-16-be")
    units = struct.unpack(f">{len(raw) // 2}H", raw)
    value: int = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units)) % 2**32
    return value if value < 2**31 else value - 2**32


@given(st.text(max_size=30), st.integers(1, 100))
def test_a_key_has_the_partition_that_a_java_broker_would_look_for_it_in(key: str, count: int) -> None:
    """Else a cluster that moves here from Apache Kafka would lose its groups and transactions."""
    assert java_string_hash(key) == plain_hash(key)
    assert partition_for(key, count) == abs(plain_hash(key)) % count


def test_the_smallest_integer_has_no_absolute_value_and_belongs_to_the_first_partition() -> None:
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("polygenelubricants", 3) == 0
