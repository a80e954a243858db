"""`python -m raftwerk.bench peers`: 2,000 peers that do not log in, beside a client that works.

A third of them is silent, a third sends a byte a second, a third sends garbage or wrong tokens and comes back when it
is disconnected. The client produces one record at a time to the same listener, first alone, then beside them. Exit code
1 when its 99th percentile is more than `--factor` times its value alone (below `--floor-ms` it is not judged), when an
answer is missing, or when the node's memory grows by more than `--growth-mb`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ..cluster.local.certificates import CertificateAuthority
from ..runtime.tls_contexts import TlsContext, TlsMaterial, TlsOptions, client_context
from ..security.client_login import ClientLogin
from ..security.sasl.plain import PlainClient
from ..wire.api_keys import ApiKey
from ..wire.client import Connection, connect
from ..wire.records import NewRecord, encode_batch
from .cached_reads import Served, start_raftwerk

Behaviour: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter, random.Random], Awaitable[None]]
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
TOPIC, USER, PASSWORD = "steady", "app", "pw"
_EVERY_S = 0.01
_SLOW_PAUSE_S, _BABBLE_PAUSE_S, _RAMP_S = 1.0, 5.0, 4.0
_GARBAGE_BYTES_MAX = 2_000
_HANDSHAKE = b"\0\0\0\x16\0\x11\0\1\0\0\0\1\0\5bench\0\5PLAIN"
_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Result(NamedTuple):
    """The client's 99th percentiles, and the memory of the node."""

    alone_ms: float
    beside_ms: float
    rss_before_mb: float
    rss_peak_mb: float


async def _measure(connection: Connection, seconds: float, on_tick: Callable[[], None]) -> float:
    loop = asyncio.get_running_loop()
    end, times_ms = loop.time() + seconds, list[float]()
    batch = memoryview(bytes(encode_batch([NewRecord(None, b"value", (), int(time.time() * 1000))])))
    rows = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
    fields = {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": rows}
    while loop.time() < end:
        began = loop.time()
        answer = await connection.request(ApiKey.PRODUCE, 9, fields, timeout_s=30)
        if answer.responses[0].partition_responses[0].error_code:
            raise ConnectionError(f"produce failed: {answer}")
        times_ms.append((loop.time() - began) * 1000)
        on_tick()
        await asyncio.sleep(max(0.0, _EVERY_S - (loop.time() - began)))
    return sorted(times_ms)[len(times_ms) * 99 // 100]


async def _client(port: int, pid: int, tls: TlsContext | None, options: argparse.Namespace) -> Result:
    peak = [0.0]

    def look() -> None:
        peak[0] = max(peak[0], _rss_mb(pid))

    login = ClientLogin(tls=tls, new_exchange=lambda _: PlainClient(USER, PASSWORD))
    connection = await connect("localhost", port, login=login, timeout_s=10)
    topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
    await connection.request(ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout": 10_000}, timeout_s=20)
    await asyncio.sleep(1.0)
    await _measure(connection, 2.0, look)
    peak[0], before = 0.0, _rss_mb(pid)
    alone = await _measure(connection, options.seconds, look)
    command = [sys.executable, "-m", "raftwerk.bench", "peers", "--attack", str(port), "--peers"]
    attackers = await asyncio.create_subprocess_exec(*command, str(options.peers))
    try:
        await _measure(connection, _RAMP_S, look)
        beside = await _measure(connection, options.seconds, look)
    finally:
        attackers.kill()
        await attackers.wait()
        connection.close()
    return Result(alone, beside, before, peak[0])


def _rss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/statm").read_text(encoding="ascii")
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def _attack(port: int, peers: int) -> None:
    kinds = (_be_silent, _be_slow, _babble)
    await asyncio.gather(*(_peer(kinds[number % 3], port, random.Random(number)) for number in range(peers)))


async def _peer(behave: Behaviour, port: int, rng: random.Random) -> None:
    await asyncio.sleep(rng.random() * _RAMP_S * 0.8)
    while True:
        writer = None
        try:
            reader, writer = await asyncio.open_connection("localhost", port)
            await behave(reader, writer, rng)
        except OSError:
            pass
        finally:
            if writer is not None:
                writer.close()
        await asyncio.sleep(_BABBLE_PAUSE_S * (0.5 + rng.random()))


async def _be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random) -> None:
    await reader.read()


async def _be_slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random) -> None:
    start = rng.choice((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0\x07\xff\xff"))
    for byte in start + bytes(600):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(_SLOW_PAUSE_S)


async def _babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random) -> None:
    garbage = rng.randbytes(rng.randrange(_GARBAGE_BYTES_MAX))
    size = rng.choice((len(garbage), 500_000, 2**31 - 1)).to_bytes(4, "big")
    writer.write(rng.choice((garbage, size + garbage, _HANDSHAKE + size + garbage)))
    await writer.drain()
    await reader.read()


def _settings(protocol: str, directory: Path) -> tuple[dict[str, str], TlsContext | None]:
    """The settings of the node, and the context of clients where the protocol needs one."""
    settings = {
        "listener.security.protocol.map": f"PLAINTEXT:{protocol},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f'{_LOGIN_MODULE} username="{USER}" password="{PASSWORD}" '
        f'user_{USER}="{PASSWORD}";',
    }
    if protocol != "SASL_SSL":
        return settings, None
    authority = CertificateAuthority.new("bench")
    store, trusted = directory / "node.pem", directory / "ca.crt"
    store.write_bytes(authority.issue("node", ["localhost", "127.0.0.1"]))
    trusted.write_bytes(authority.certificate_pem)
    stores = {"keystore": store, "truststore": trusted}
    settings |= {f"ssl.{kind}.type": "PEM" for kind in stores}
    settings |= {f"ssl.{kind}.location": str(path) for kind, path in stores.items()}
    return settings, client_context(TlsMaterial(authorities=authority.certificate_pem), TlsOptions())


def run(protocol: str, options: argparse.Namespace, directory: Path) -> list[str]:
    """Measure and print; returns what is wrong."""
    directory.mkdir()
    settings, tls = _settings(protocol, directory)
    served: Served = start_raftwerk(protocol, directory / "node", settings)
    try:
        found = asyncio.run(_client(served.port, served.pid, tls, options))
    finally:
        served.stop()
    growth_mb = found.rss_peak_mb - found.rss_before_mb
    print(
        f"{protocol:<15} p99 alone {found.alone_ms:6.2f} ms, beside {options.peers:,} peers {found.beside_ms:6.2f} ms "
        f"({found.beside_ms / found.alone_ms:.1f} times); memory {found.rss_before_mb:.0f} MB, "
        f"at most {found.rss_peak_mb:.0f} MB",
        flush=True,
    )
    wrong = []
    if found.beside_ms > max(options.floor_ms, options.factor * found.alone_ms):
        wrong.append(f"{protocol}: the p99 beside the peers is more than {options.factor:g} times the one alone")
    if growth_mb > options.growth_mb:
        wrong.append(f"{protocol}: the memory of the node has grown by {growth_mb:.0f} MB")
    return wrong


def main(arguments: Sequence[str]) -> int:
    """Run with each protocol; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench peers", description=__doc__)
    parser.add_argument("--peers", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=15.0, help="how long the client is measured, twice")
    parser.add_argument("--factor", type=float, default=2.0)
    parser.add_argument("--floor-ms", type=float, default=5.0)
    parser.add_argument("--growth-mb", type=float, default=200.0)
    parser.add_argument("--attack", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.attack:
        os.nice(10)
        asyncio.run(_attack(options.attack, options.peers))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        wrong = [text for name in PROTOCOLS for text in run(name, options, Path(directory) / name)]
    print("\n".join(wrong) or "nothing is wrong")
    return 1 if wrong else 0
