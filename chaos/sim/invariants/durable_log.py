"""How much of the metadata log a simulated disk would have after a loss of power.

It is read from the bytes that the device holds, not from what the node believes of itself.
"""

from __future__ import annotations

from ....wire.records import CorruptBatchError, read_header, read_valid_header
from ..disk.sim_disk import SimDisk

_SUFFIX = ".log"


class DurableLog:
    """The end of the log in a directory of a disk. Each batch is read once, unless the log was cut before it."""

    def __init__(self, disk: SimDisk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._segment = ""
        self._last_batch: tuple[int, bytes] = (0, b"")
        """The position of the last batch that was read, with its bytes."""

    @property
    def end_offset(self) -> int:
        """The offset after the last batch of the last segment that is whole on the device; 0 without a segment."""
        if not self._disk.is_dir(self._directory):
            return 0
        segments = [name for name in self._disk.listdir(self._directory) if _is_segment(name)]
        for name in reversed(segments):
            data = self._disk.durable_bytes(f"{self._directory}/{name}")
            if data is not None:
                return self._end_of(name, data)
        return 0

    @property
    def last_checksum(self) -> int | None:
        """The checksum of the batch that ends at `end_offset`; None if the segment has no batch."""
        _, batch = self._last_batch
        return read_header(batch, 0).crc if batch else None

    def _end_of(self, name: str, data: bytearray) -> int:
        position, batch = self._last_batch
        if name != self._segment or data[position : position + len(batch)] != batch:
            position, batch = 0, b""
        end_offset = read_header(batch, 0).next_offset if batch else int(name.removesuffix(_SUFFIX))
        at = position + len(batch)
        while True:
            try:
                header = read_header(data, at)
            except CorruptBatchError:
                break
            found = bytes(data[at : at + header.size_bytes])
            if header.base_offset < end_offset or read_valid_header(memoryview(found), 0) is None:
                break
            position, batch, end_offset = at, found, header.next_offset
            at += header.size_bytes
        self._segment, self._last_batch = name, (position, batch)
        return end_offset


def _is_segment(name: str) -> bool:
    return name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX).isdigit()
