"""The partition of a coordinator's topic that a group or a transactional id belongs to."""

from __future__ import annotations

_INT32_SIGN = 0x80000000


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: computed over UTF-16 code units, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 0x100000000 if value & _INT32_SIGN else value


def partition_for(key: str, partition_count: int) -> int:
    """The partition, as Kafka computes it: the absolute value of the hash (0 for the smallest integer), modulo."""
    value = java_string_hash(key)
    return (0 if value == -_INT32_SIGN else abs(value)) % partition_count
