"""A group that ships orders. It may commit an order before it has shipped it: the bug that loses orders."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, IllegalStateError

CARRIER_S = 0.2


async def ship_orders(bootstrap: str, shipped: list[bytes], *, commits_first: bool) -> None:
    """Ship what is in `orders`, one after the other, until cancelled."""
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="shipping",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        async for message in consumer:
            if commits_first:
                await commit(consumer)
            await asyncio.sleep(CARRIER_S)  # the carrier's API
            shipped.append(message.value)
            if not commits_first:
                await commit(consumer)
    finally:
        await consumer.stop()


async def commit(consumer: AIOKafkaConsumer) -> None:
    """Commit; what the group has given to another member meanwhile, that member ships again."""
    try:
        await consumer.commit()
    except (CommitFailedError, IllegalStateError):
        pass
