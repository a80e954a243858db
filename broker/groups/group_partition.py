"""Which partition of `__consumer_offsets` a group belongs to."""

from __future__ import annotations

_INT32_SIGN = 0x80000000


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, in 32 bits with a sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 0x100000000 if value & _INT32_SIGN else value


def partition_for(group_id: str, partition_count: int) -> int:
    """Kafka's choice: the absolute value of the hash (0 for the smallest integer, which has none), modulo."""
    value = java_string_hash(group_id)
    return (0 if value == -_INT32_SIGN else abs(value)) % partition_count
