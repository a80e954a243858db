"""Sequence numbers of idempotent producers: they count modulo 2^31, and go on at 0."""

from __future__ import annotations

SEQUENCE_MASK = 0x7FFFFFFF
"""Sequence numbers of producers count modulo 2^31."""
SEQUENCES_AHEAD_MAX = 1 << 30
"""Sequence numbers wrap at 2^31, so that older numbers are told from newer ones within half of that range."""


def is_later_sequence(sequence: int, than: int) -> bool:
    """Whether a sequence number comes after another one of the same producer and epoch."""
    return 0 < (sequence - than) & SEQUENCE_MASK <= SEQUENCES_AHEAD_MAX
