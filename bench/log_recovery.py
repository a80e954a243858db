"""`python -m raftwerk.bench recovery`: how long the logs of a node take to open, after a clean stop and after a kill.

One process fills logs in a directory of its own, leaves them as a kill does, and opens them in steps, as a node does.
The longest hold is the time that other work on the loop would have waited. It is processor time of the thread, because
the time by the clock says little on a machine that is shared with others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import UUID

from ..log.config import LogConfig
from ..log.manager.log_manager import LogManager
from ..log.manager.log_manager_config import LogManagerConfig
from ..log.manager.meta_properties import format_dirs
from ..runtime.loop import raise_file_limit, real_runtime
from ..runtime.ports import Runtime
from ..wire.records import encode_batch
from ..wire.types import TopicPartition

_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
_DEFAULTS = ("1x1x1", "1x10x100", "1x100x100", "1x1x1000", "100x1x1", "500x1x1", "2000x1x0.1")


@dataclass
class Row:
    """The figures of one shape of logs. `size_mb` is the size of all logs together."""

    partitions: int
    segments: int
    size_mb: float
    batches: int
    clean_s: float
    clean_hold_ms: float
    unclean_s: float
    unclean_hold_ms: float
    durable_s: float
    """Seconds to open after a kill, when everything was durable (recovery points are written every minute)."""
    descriptors: int


def _manager(runtime: Runtime, directory: str, segment_bytes: int) -> LogManager:
    defaults = LogConfig(segment_bytes=segment_bytes)
    return LogManager(runtime, LogManagerConfig((directory,), _CLUSTER, 1, defaults))


def _fill(manager: LogManager, partitions: int, segments: int, mb_each: float, batch_bytes: int) -> int:
    """Write batches into all logs; how many."""
    one = bytes(encode_batch([(None, b"x" * max(1, batch_bytes - 80), (), 1000)]))
    share = max(1, int(mb_each * 1e6 / segments / len(one)))
    for number in range(partitions):
        log = manager.create(TopicPartition("t", number), UUID(int=7))
        for segment in range(segments):
            left = share
            while left:
                count = min(left, max(1, (1 << 20) // len(one)))
                log.append_as_leader(memoryview(bytearray(one * count)), 0, 1000)
                left -= count
            if segment < segments - 1:
                log.roll()
    return share * segments * partitions


async def _open(manager: LogManager) -> tuple[float, float]:
    """The seconds in all, and the longest hold of the loop in milliseconds."""
    longest, is_over = 0.0, False

    async def watch() -> None:
        nonlocal longest
        while not is_over:
            before = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - before)

    watching = asyncio.get_running_loop().create_task(watch())
    began = time.perf_counter()
    manager.begin_load()
    await manager.load_soon()
    seconds = time.perf_counter() - began
    is_over = True
    await watching
    return seconds, longest * 1e3


def _descriptors(directory: str) -> int:
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found += str(entry.readlink()).startswith(directory)
        except OSError:
            continue
    return found


def measure(shape: str, batch_bytes: int, below: str | None) -> Row:
    """Measure a shape: partitions x segments x MB of each partition."""
    partitions, segments, mb_each = (float(part) for part in shape.split("x"))
    directory = tempfile.mkdtemp(prefix="raftwerk-recovery-", dir=below)
    runtime = real_runtime(1)
    segment_bytes = int(max(mb_each / segments * 2e6, 1 << 20))
    try:
        format_dirs(runtime, (directory,), _CLUSTER, 1)
        manager = _manager(runtime, directory, segment_bytes)
        manager.load()
        batches = _fill(manager, int(partitions), int(segments), mb_each, batch_bytes)
        manager.shutdown()
        again = _manager(runtime, directory, segment_bytes)
        clean_s, clean_hold_ms = asyncio.run(_open(again))
        descriptors = _descriptors(directory)
        again.shutdown()
        for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
            (Path(directory) / name).unlink(missing_ok=True)
        again = _manager(runtime, directory, segment_bytes)
        unclean_s, unclean_hold_ms = asyncio.run(_open(again))
        again.shutdown()
        (Path(directory) / ".kafka_cleanshutdown").unlink()
        again = _manager(runtime, directory, segment_bytes)
        durable_s, _ = asyncio.run(_open(again))
        again.shutdown()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    size_mb = partitions * mb_each
    figures = (clean_s, clean_hold_ms, unclean_s, unclean_hold_ms, durable_s)
    return Row(int(partitions), int(segments), size_mb, batches, *figures, descriptors)


def main(arguments: list[str]) -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench recovery", description=__doc__)
    parser.add_argument("shapes", nargs="*", default=list(_DEFAULTS), help="partitions x segments x MB of each")
    parser.add_argument("--batch-bytes", type=int, default=4096, help="size of a batch (default 4096)")
    parser.add_argument("--dir", help="put the data below this directory: which disk is measured")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    raise_file_limit()
    print(f"{'partitions':>10} {'segments':>9} {'MB':>8} {'batches':>9} {'clean s':>10} {'hold ms':>8}", end=" ")
    print(f"{'unclean s':>12} {'hold ms':>8} {'durable s':>10} {'files':>8}")
    rows = []
    for shape in options.shapes:
        row = measure(shape, options.batch_bytes, options.dir)
        rows.append(row)
        print(
            f"{row.partitions:10,} {row.segments:9,} {row.size_mb:8,.0f} {row.batches:9,} {row.clean_s:10.2f} "
            f"{row.clean_hold_ms:8.1f} {row.unclean_s:12.2f} {row.unclean_hold_ms:8.1f} "
            f"{row.durable_s:10.2f} {row.descriptors:8,}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0
