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
        self._last_batches: dict[str, tuple[int, bytes]] = {}
        """For each segment in their order, the position of the last batch that was read, with its bytes."""

    @property
    def end_offset(self) -> int:
        """The offset after the last batch that is whole on the device, as are all before it; 0 without a segment."""
        known, self._last_batches = self._last_batches, {}
        if not self._disk.is_dir(self._directory):
            return 0
        end_offset = 0
        for name in filter(_is_segment, self._disk.listdir(self._directory)):
            data = self._disk.durable_bytes(f"{self._directory}/{name}")
            if data is None:
                continue
            base_offset = int(name.removesuffix(_SUFFIX))
            if self._last_batches and base_offset != end_offset:
                break  # the end of the segment before it is missing
            self._last_batches[name] = _last_batch(data, base_offset, known.get(name, (0, b"")))
            _, batch = self._last_batches[name]
            end_offset = read_header(batch, 0).next_offset if batch else base_offset
        return end_offset

    @property
    def last_checksum(self) -> int | None:
        """The checksum of the batch that ends at `end_offset`; None if the segment has no batch."""
        _, batch = next(reversed(self._last_batches.values()), (0, b""))
        return read_header(batch, 0).crc if batch else None


def _last_batch(data: bytearray, base_offset: int, known: tuple[int, bytes]) -> tuple[int, bytes]:
    """The last whole batch of a segment, and its position; `known` was the last one before, if it is still there."""
    position, batch = known
    if data[position : position + len(batch)] != batch:
        position, batch = 0, b""
    end_offset = read_header(batch, 0).next_offset if batch else base_offset
    at = position + len(batch)
    while True:
        try:
            header = read_header(data, at)
        except CorruptBatchError:
            return position, batch
        found = bytes(data[at : at + header.size_bytes])
        if header.base_offset != end_offset or read_valid_header(memoryview(found), 0) is None:
            return position, batch
        position, batch, end_offset = at, found, header.next_offset
        at += header.size_bytes


def _is_segment(name: str) -> bool:
    return name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX).isdigit()
