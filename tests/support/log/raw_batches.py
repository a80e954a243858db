"""Batches whose headers and CRCs are sound, whatever their records are."""

from __future__ import annotations

import struct

from raftwerk.wire.records import BATCH_HEADER_SIZE, compute_crc, encode_batch, read_header


def raw_batch(body: bytes, count: int = 3, codec: int = 0, max_timestamp: int = 1002) -> memoryview:
    """A batch with a sound header and CRC around any body."""
    batch = encode_batch([(b"k", b"", (), 1000)])[:BATCH_HEADER_SIZE] + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">q", batch, 35, max_timestamp)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, compute_crc(batch, 0, read_header(batch)))
    return memoryview(batch)
