"""A group that computes reports. Computed in the event loop, a long one stops the heartbeats: the bug of blocking."""

from __future__ import annotations

import asyncio
import time

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

LONG_S = 25.0


async def make_reports(bootstrap: str, made: list[bytes], *, blocks: bool) -> None:
    """Make a report of each message in `wanted`, until cancelled; after an error begin anew."""
    while True:
        try:
            await _make(bootstrap, made, blocks=blocks)
        except KafkaError:
            await asyncio.sleep(1.0)


async def _make(bootstrap: str, made: list[bytes], *, blocks: bool) -> None:
    consumer = AIOKafkaConsumer(
        "wanted",
        bootstrap_servers=bootstrap,
        group_id="reports",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=5_000,
        session_timeout_ms=10_000,
    )
    await consumer.start()
    try:
        async for message in consumer:
            if blocks:
                compute(message.value)
            else:
                await asyncio.to_thread(compute, message.value)
            made.append(message.value)
            await consumer.commit()
    finally:
        await consumer.stop()


def compute(value: bytes) -> None:
    """A computation of Python's, which takes its time."""
    time.sleep(LONG_S if value.startswith(b"long") else 0.1)
