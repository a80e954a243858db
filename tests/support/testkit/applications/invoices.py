"""Reads orders and writes invoices: with a transaction each exactly once, without one some twice."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced


async def write_invoices(bootstrap: str, *, transactional: bool) -> None:
    """Write an invoice for each order, and begin anew after an error, until cancelled."""
    while True:
        try:
            await _write(bootstrap, transactional=transactional)
        except (KafkaError, ProducerFenced):
            await asyncio.sleep(1.0)


async def _write(bootstrap: str, *, transactional: bool) -> None:
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="invoices",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=5_000,
        isolation_level="read_committed",
    )
    settings = {"transactional_id": "invoices-1"} if transactional else {"enable_idempotence": True}
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
    await producer.start()
    try:
        await consumer.start()
        async for message in consumer:
            if transactional:
                await _in_a_transaction(producer, message)
            else:
                await producer.send_and_wait("invoices", message.value)
                await asyncio.sleep(0.1)
                await consumer.commit()
    finally:
        await consumer.stop()
        await producer.stop()


async def _in_a_transaction(producer: AIOKafkaProducer, message: Any) -> None:
    async with producer.transaction():
        await producer.send("invoices", message.value)
        await asyncio.sleep(0.1)
        offsets = {TopicPartition(message.topic, message.partition): message.offset + 1}
        await producer.send_offsets_to_transaction(offsets, "invoices")
