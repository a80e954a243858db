"""`python -m raftwerk.bench log-size`: does a longer log cost more? 1 GB and 50 GB in turn.

Both are real logs with all their files. Their records are zeros, which the file system keeps as holes, so that 50 GB
take little space; headers, checksums and indexes are the usual ones. The figures are those of `PartitionLog` alone, in
this process, for records in the page cache.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ..log.config import LogConfig
from ..log.partition_log import PartitionLog
from ..runtime.files.real_disk import RealDisk
from ..runtime.files.real_file import RealFile
from ..runtime.loop import real_runtime
from ..runtime.ports import Buffer
from ..wire.records import encode_batch
from .common.raw_client import batches

_HEAD_BYTES = 512
_VALUE_BYTES = 128 * 1024
_START_MS = 1_700_000_000_000
_APPENDS, _APPEND_BYTES, _READS, _READ_BYTES, _LOOKUPS = 4_000, 16 * 1024, 2_000, 64 * 1024, 500

Times = dict[str, list[tuple[float, float]]]
"""Seconds by the clock, and processor seconds."""
T = TypeVar("T")


class _SparseFile(RealFile):
    """Writes only the first bytes of what is appended to a log; the rest, zeros, is a hole."""

    __slots__ = ()

    def append(self, buffers: Sequence[Buffer]) -> int:
        if not self.path.endswith(".log"):
            return super().append(buffers)
        start = self.size()
        for data in buffers:
            end = self.size() + len(data)
            super().append([memoryview(data)[:_HEAD_BYTES]])
            self.truncate(end)
        return self.size() - start


class _SparseDisk(RealDisk):
    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = super().open(path, create=create)
        return _SparseFile(file.reference(), path, file.size())


def _build(directory: Path, total_bytes: int, config: LogConfig) -> int:
    """Fill a log; the base offset of its last segment. Each record is a second younger than the one before."""
    directory.mkdir(parents=True)
    log = PartitionLog.open(replace(real_runtime(), disk=_SparseDisk()), str(directory), config)
    number = 0
    while log.size_bytes < total_bytes:
        timestamp_ms = _START_MS + number * 1000
        batch = encode_batch([(None, bytes(_VALUE_BYTES), (), timestamp_ms)])
        log.append_as_leader(memoryview(batch), 0, timestamp_ms)
        number += 1
    last = log.segments[-1].base_offset
    log.close()
    return last


def _timed(times: Times, name: str, action: Callable[..., T], *args: Any, **options: Any) -> T:
    began, cpu = time.perf_counter(), time.thread_time()
    result = action(*args, **options)
    times.setdefault(name, []).append((time.perf_counter() - began, time.thread_time() - cpu))
    return result


def _turn(path: str, last_base: int, config: LogConfig, seed: int, times: Times) -> None:
    """Open the log after a clean stop, use it, close it uncleanly, and recover it."""
    runtime = real_runtime()
    settled = {"recovery_point": last_base, "clean_shutdown": True}
    log = _timed(times, "open after a clean stop", PartitionLog.open, runtime, path, config, **settled)
    end, now_ms = log.log_end_offset, runtime.clock.wall_ms()
    for batch in batches(_APPENDS * _APPEND_BYTES, _APPEND_BYTES):
        data = memoryview(bytearray(batch))
        _timed(times, "append of 16 KB", log.append_as_leader, data, 0, now_ms)
    for repeat in (0, 1):  # what it costs when it is in the page cache, which 50 GB are not at once
        rng = random.Random(seed)
        found = times if repeat else {}
        for _ in range(_READS):
            _timed(found, "read of 64 KB anywhere", log.read, rng.randrange(end), _READ_BYTES, end_offset=end)
        for _ in range(_LOOKUPS):
            at_ms = _START_MS + rng.randrange(end) * 1000 - 500
            _timed(found, "look-up by time", log.offset_for_timestamp, at_ms)
    log.flush()
    for segment in log.segments:
        segment.close()
    log = _timed(times, "open after an unclean stop", PartitionLog.open, runtime, path, config, recovery_point=end)
    log.truncate_to(end)
    log.close()


def _figures(found: list[tuple[float, float]]) -> dict[str, float]:
    """Quantiles and means, in microseconds."""
    clock = sorted(seconds for seconds, _ in found)
    cpu_us = statistics.fmean(cpu for _, cpu in found) * 1e6
    if len(clock) < 50:
        return {"median": statistics.median(clock) * 1e6, "processor, mean": cpu_us}
    quantiles = {name: clock[int(len(clock) * of)] * 1e6 for name, of in (("p50", 0.5), ("p99", 0.99))}
    return {**quantiles, "processor, mean": cpu_us}


def _show(results: dict[str, Times]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    print(f"{'':44}" + "".join(f"{size:>16}" for size in results))
    for name in next(iter(results.values())):
        columns = {size: _figures(times[name]) for size, times in results.items()}
        for figure in next(iter(columns.values())):
            cells = {size: column[figure] for size, column in columns.items()}
            rows.append({"what": name, "figure": figure, "us": cells})
            print(f"{name + ', ' + figure:44}" + "".join(f"{cell:13,.0f} us" for cell in cells.values()), flush=True)
    return rows


def main(arguments: list[str]) -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench log-size", description=__doc__)
    parser.add_argument("--gb", type=float, nargs="+", default=[1.0, 50.0], help="sizes of the logs (default 1 and 50)")
    parser.add_argument("--segment-mb", type=int, default=1024, help="size of a segment (default 1024)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    config = LogConfig(segment_bytes=options.segment_mb << 20)
    root = Path(tempfile.mkdtemp(prefix="raftwerk-log-size-"))
    results: dict[str, Times] = {}
    try:
        last_bases = {size: _build(root / f"t-{size:g}", int(size * 1e9), config) for size in options.gb}
        for seed in range(options.turns):
            for size, last_base in last_bases.items():
                times = results.setdefault(f"{size:g} GB", {})
                _turn(str(root / f"t-{size:g}"), last_base, config, seed, times)
        rows = _show(results)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return 0
