"""The records of several batches, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from raftwerk.runtime.ports import Buffer
from raftwerk.wire.records import BatchHeader, Record, iter_headers, iter_records


def iter_all_records(buf: Buffer) -> Iterator[tuple[BatchHeader, Record]]:
    """Each record with its batch's header. An incomplete last batch is left out, as at the end of a Fetch answer."""
    view = memoryview(buf)
    for position, header in iter_headers(view, allow_partial_tail=True):
        for record in iter_records(view[position : position + header.size_bytes]):
            yield header, record
