"""What a producer is told of its batch, compared with what was stored and committed.

"a producer is told the time that is stored": that of the leader's append, between its request and the ack; none if the
records keep their own. "a record is stored as it was sent", in the producer's codec if the topic asks for no other.
"""

from __future__ import annotations

from typing import NamedTuple

from .....wire.records import iter_records, read_header
from ..invariant_broken import InvariantBroken
from .known_records import KnownRecords

_COMPACTED_AFTER_S = 0.5


class Told(NamedTuple):
    """The answer to a batch of that name; the time is -1 if the records keep their own."""

    what: str
    base_offset: int
    append_time_ms: int


def check_told(
    known: KnownRecords, told: Told, data: bytes, times_s: tuple[float, float], *, is_compacted: bool = False
) -> None:
    """`data` is what was sent, `times_s` when it was made and when the ack came. Raises `InvariantBroken`.

    If the topic `is_compacted`, a batch may be gone that is acked long after its append. Nobody knows then whose time
    it had, and the present type of timestamps decides.
    """
    stored, (sent_s, acked_s) = known.batches.get(told.base_offset), times_s
    if stored is None:
        raise InvariantBroken("a producer is told the time that is stored", f"{told}, no batch is there")
    expected_ms = stored.max_timestamp if stored.is_stamped else -1
    is_timely = stored.appended_s < 0 or sent_s <= stored.appended_s <= acked_s
    may_be_gone = is_compacted and acked_s - stored.appended_s > _COMPACTED_AFTER_S
    is_right = told.append_time_ms in (expected_ms, *((-1, stored.max_timestamp) if may_be_gone else ()))
    if not is_right or not is_timely:
        raise InvariantBroken("a producer is told the time that is stored", f"{told}, sent {sent_s}, {stored}")
    for number, sent in enumerate(iter_records(data)):
        expected = sent._replace(offset=told.base_offset + number, key=bytes(sent.key or b""))
        if stored.is_stamped:
            expected = expected._replace(timestamp=stored.max_timestamp)
        found = known.records.get(expected.offset)
        if found != expected:
            detail = f"{told}: {found}, sent was {expected}"
            raise InvariantBroken("a record is stored as it was sent", detail[:600])
    sent_codec = read_header(data, 0).compression
    if stored.is_codec_kept and stored.codec != sent_codec:
        raise InvariantBroken("a record is stored as it was sent", f"{told}: codec {sent_codec}, {stored}")
