"""A group that ships orders. It may commit an order before it has shipped it: the bug that loses orders."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

CARRIER_S = 0.2


async def ship_orders(bootstrap: str, shipped: list[bytes], *, commits_first: bool) -> None:
    """Ship what is in `orders`, one after the other, until cancelled; after an error begin anew."""
    while True:
        try:
            await _ship(bootstrap, shipped, commits_first=commits_first)
        except KafkaError:
            await asyncio.sleep(1.0)


async def _ship(bootstrap: str, shipped: list[bytes], *, commits_first: bool) -> None:
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="shipping",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=5_000,
    )
    await consumer.start()
    try:
        async for message in consumer:
            if commits_first:
                await consumer.commit()
            await asyncio.sleep(CARRIER_S)  # the carrier's API
            shipped.append(message.value)
            if not commits_first:
                await consumer.commit()
    finally:
        await consumer.stop()
