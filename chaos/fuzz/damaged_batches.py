"""Record batches that are damaged inside, with a CRC that is right, so that only a look at the records finds it."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable

import zstandard
from crc32c import crc32c

from ...wire.compression import Compression, compress
from ...wire.records import BATCH_HEADER_SIZE, NewRecord, encode_batch

_CRC_AT, _ATTRIBUTES_AT, _COUNT_AT, _LAST_DELTA_AT = 17, 21, 57, 23
_PRODUCER_AT, _MAX_TIMESTAMP_AT = 43, 35
_LENGTH_AT = 8
_LENGTH_BEFORE = 12


def good_batch(rng: random.Random, codec: Compression, count: int = 3) -> bytearray:
    """A batch that any broker takes."""
    now_ms = int(time.time() * 1000)
    records = [NewRecord(b"k%d" % rng.randrange(5), rng.randbytes(rng.randrange(60)), (), now_ms) for _ in range(count)]
    return encode_batch(records, compression=codec)


def with_right_crc(batch: bytearray) -> bytearray:
    """The batch with the CRC and the length of what it holds now."""
    struct.pack_into(">i", batch, _LENGTH_AT, len(batch) - _LENGTH_BEFORE)
    struct.pack_into(">I", batch, _CRC_AT, crc32c(bytes(batch[_ATTRIBUTES_AT:])))
    return batch


def draw_batch(rng: random.Random) -> bytes:
    """A batch of any codec: one in four is good, the others are damaged in one of the ways of `DAMAGES`."""
    codec = rng.choice(list(Compression))
    batch = good_batch(rng, codec, rng.choice((1, 1, 3, 20)))
    if rng.random() < 0.25:
        return bytes(batch)
    batch = rng.choice(list(DAMAGES.values()))(rng, batch)
    if len(batch) >= BATCH_HEADER_SIZE and rng.random() < 0.9:
        batch = with_right_crc(batch)
    return bytes(batch) if rng.random() < 0.9 else bytes(batch + good_batch(rng, codec))


def _body_flipped(rng: random.Random, batch: bytearray) -> bytearray:
    batch[rng.randrange(BATCH_HEADER_SIZE, len(batch))] ^= 1 << rng.randrange(8)
    return batch


def _body_garbage(rng: random.Random, batch: bytearray) -> bytearray:
    return batch[:BATCH_HEADER_SIZE] + rng.randbytes(rng.choice((0, 1, 19, 200)))


def _records_garbage(rng: random.Random, batch: bytearray) -> bytearray:
    codec = Compression(batch[_ATTRIBUTES_AT + 1] & 7)
    raw = rng.randbytes(50)
    return batch[:BATCH_HEADER_SIZE] + (compress(codec, raw) if codec else raw)


def _body_cut(rng: random.Random, batch: bytearray) -> bytearray:
    return batch[: rng.randrange(BATCH_HEADER_SIZE, len(batch))]


def _other_codec(rng: random.Random, batch: bytearray) -> bytearray:
    batch[_ATTRIBUTES_AT + 1] ^= rng.randint(1, 7)
    return batch


def _other_count(rng: random.Random, batch: bytearray) -> bytearray:
    struct.pack_into(">i", batch, _COUNT_AT, rng.choice((0, -1, 2, 7, 1 << 20, 2**31 - 1, -(2**31))))
    return batch


def _other_last_delta(rng: random.Random, batch: bytearray) -> bytearray:
    struct.pack_into(">i", batch, _LAST_DELTA_AT, rng.choice((-1, 1, 7, 2**31 - 1, -(2**31))))
    return batch


def _count_and_delta(rng: random.Random, batch: bytearray) -> bytearray:
    count = rng.choice((2, 50, 2**31 - 1))
    struct.pack_into(">i", batch, _COUNT_AT, count)
    struct.pack_into(">i", batch, _LAST_DELTA_AT, count - 1)
    return batch


def _timestamps(rng: random.Random, batch: bytearray) -> bytearray:
    limits = (-1, -2, 0, 2**63 - 1, -(2**63))
    struct.pack_into(">q", batch, _MAX_TIMESTAMP_AT - rng.choice((0, 8)), rng.choice(limits))
    return batch


def _producer(rng: random.Random, batch: bytearray) -> bytearray:
    struct.pack_into(
        ">qhi",
        batch,
        _PRODUCER_AT,
        rng.choice((-2, 0, 1, 1000, 2**63 - 1)),
        rng.choice((-1, 0, 5, 2**15 - 1)),
        rng.choice((-1, 0, 7, 2**31 - 1)),
    )
    return batch


def _flags(rng: random.Random, batch: bytearray) -> bytearray:
    batch[_ATTRIBUTES_AT + rng.randrange(2)] ^= 1 << rng.randrange(8)
    return batch


def _header_flipped(rng: random.Random, batch: bytearray) -> bytearray:
    batch[rng.randrange(BATCH_HEADER_SIZE)] ^= 1 << rng.randrange(8)
    return batch


def _cut_header(rng: random.Random, batch: bytearray) -> bytearray:
    return batch[: rng.randrange(BATCH_HEADER_SIZE)]


DAMAGES: dict[str, Callable[[random.Random, bytearray], bytearray]] = {
    "body-flipped": _body_flipped,
    "body-garbage": _body_garbage,
    "records-garbage": _records_garbage,
    "body-cut": _body_cut,
    "other-codec": _other_codec,
    "other-count": _other_count,
    "other-last-delta": _other_last_delta,
    "count-and-delta": _count_and_delta,
    "timestamps": _timestamps,
    "producer": _producer,
    "flags": _flags,
    "header-flipped": _header_flipped,
    "header-cut": _cut_header,
}
"""Each damage takes a good batch and returns the damaged one; it may change the batch in place."""


def bomb(codec: Compression, inflated_bytes: int) -> bytes:
    """A batch of few bytes whose records inflate to `inflated_bytes` of one valid record."""
    now_ms = int(time.time() * 1000)
    plain = encode_batch([NewRecord(b"k", bytes(inflated_bytes), (), now_ms)])
    body = plain[BATCH_HEADER_SIZE:]
    packed = zstandard.compress(bytes(body), 19) if codec is Compression.ZSTD else compress(codec, body)
    batch = bytearray(plain[:BATCH_HEADER_SIZE]) + packed
    batch[_ATTRIBUTES_AT + 1] = codec
    return bytes(with_right_crc(batch))


def many_records(codec: Compression, count: int) -> bytes:
    """A batch of few bytes with `count` empty records, each of them valid."""
    body = bytearray()
    for delta in range(count):
        # Length, attributes, timestamp delta, offset delta, null key, null value, no headers; varints in zigzag form.
        record = b"\0\0" + _zigzag(delta) + b"\x01\x01\0"
        body += _zigzag(len(record)) + record
    now_ms = int(time.time() * 1000)
    batch = bytearray(encode_batch([NewRecord(b"k", b"", (), now_ms)])[:BATCH_HEADER_SIZE])
    batch += zstandard.compress(bytes(body), 19) if codec is Compression.ZSTD else compress(codec, body)
    batch[_ATTRIBUTES_AT + 1] = codec
    struct.pack_into(">i", batch, _COUNT_AT, count)
    struct.pack_into(">i", batch, _LAST_DELTA_AT, count - 1)
    return bytes(with_right_crc(batch))


def _zigzag(number: int) -> bytes:
    value, out = number << 1, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def garbage_group_record(rng: random.Random) -> bytes:
    """A good batch with one record that a group coordinator cannot read: an unknown type, or a length that lies."""
    now_ms = int(time.time() * 1000)
    commit_key = struct.pack(">hh", 1, 5) + b"group" + struct.pack(">h", 1) + b"t" + struct.pack(">i", 0)
    key, value = rng.choice(
        (
            (commit_key, struct.pack(">hq", 3, 7)),
            (commit_key, struct.pack(">hqih", 3, 7, 1, 30_000) + b"short"),
            (struct.pack(">hh", 2, 5) + b"group", struct.pack(">hh", 3, 20_000)),
            (struct.pack(">hh", 2, 5) + b"group", rng.randbytes(40)),
            (struct.pack(">hh", 3, 500) + b"g", rng.randbytes(10)),
            (struct.pack(">h", 999), rng.randbytes(10)),
            (b"", b""),
            (rng.randbytes(20), None),
        )
    )
    return bytes(encode_batch([NewRecord(key, value, (), now_ms)]))


def lying_record() -> bytes:
    """A batch of 80 bytes with one record whose value is said to be longer than the batch."""
    batch = encode_batch([NewRecord(b"key", b"value", (), int(time.time() * 1000))])
    batch[BATCH_HEADER_SIZE + 8] = 0x7E
    return bytes(with_right_crc(batch))
