"""A producer that repeats a send that failed. Without idempotence that pays twice: the bug of retries."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError


async def pay(bootstrap: str, count: int, *, idempotent: bool) -> None:
    """Send the payments 0 to `count`, each again until it is acked."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=idempotent, acks="all", request_timeout_ms=2_000
    )
    await started(producer)
    try:
        for number in range(count):
            await send(producer, b"%d" % number, again=not idempotent)
            await asyncio.sleep(0.5)
    finally:
        await producer.stop()


async def started(producer: AIOKafkaProducer) -> None:
    """Start it; a cluster that is being elected refuses."""
    while True:
        try:
            await producer.start()
            return
        except KafkaError:
            await asyncio.sleep(1.0)


async def send(producer: AIOKafkaProducer, value: bytes, *, again: bool) -> None:
    """Send one payment; an idempotent producer repeats by itself until it may."""
    while True:
        try:
            await producer.send_and_wait("payments", value)
            return
        except KafkaError:
            if not again:
                raise
