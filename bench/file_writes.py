"""`python -m raftwerk.bench writes`: are a log's writes cheaper into preallocated files, or several at once?

In turn, for several sizes of batches: each batch is written at the end of its file, as `PartitionLog` does; the same
into a file whose blocks were reserved before; and eight batches in one call. A row is the processor time of a batch,
the 99th percentile of a call by the clock, and the duration of the final fsync for each GB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

_TOGETHER = 8
_FILE_BYTES_MAX = 256 << 20
_CALLS_MAX = 20_000
_WAYS: dict[str, tuple[bool, int]] = {
    "one by one": (False, 1),
    "preallocated": (True, 1),
    f"{_TOGETHER} at once": (False, _TOGETHER),
}


def _write(path: str, size_bytes: int, is_preallocated: bool, together: int) -> dict[str, float]:
    count = min(_CALLS_MAX, _FILE_BYTES_MAX // size_bytes) // _TOGETHER * _TOGETHER
    batch = os.urandom(size_bytes)
    buffers = [batch] * together
    calls: list[float] = []
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        cpu = time.thread_time()
        if is_preallocated:
            os.posix_fallocate(fd, 0, count * size_bytes)
        at = 0
        for _ in range(count // together):
            began = time.perf_counter()
            at += os.pwritev(fd, buffers, at)
            calls.append(time.perf_counter() - began)
        cpu = time.thread_time() - cpu
        began = time.perf_counter()
        os.fdatasync(fd)
        sync_s = time.perf_counter() - began
    finally:
        os.close(fd)
        os.unlink(path)
    calls.sort()
    return {
        "processor, us a batch": cpu / count * 1e6,
        "p99 of a call, us": calls[int(len(calls) * 0.99)] * 1e6,
        "fsync, s a GB": sync_s / (count * size_bytes) * 1e9,
    }


def main(arguments: list[str]) -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench writes", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1024, 16 * 1024, 256 * 1024])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory(prefix="raftwerk-writes-") as directory:
        print(f"{'':34}" + "".join(f"{name:>16}" for name in _WAYS))
        for size in options.sizes:
            found: dict[str, list[dict[str, float]]] = {name: [] for name in _WAYS}
            for _ in range(options.turns):
                for name, way in _WAYS.items():
                    found[name].append(_write(f"{directory}/log", size, *way))
            for figure in found["one by one"][0]:
                cells = {name: statistics.median(turn[figure] for turn in turns) for name, turns in found.items()}
                rows.append({"bytes": size, "figure": figure, **cells})
                print(f"{size:8} B {figure:24}" + "".join(f"{cell:16.2f}" for cell in cells.values()), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return 0
