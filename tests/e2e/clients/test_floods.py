"""Floods and huge requests of clients beside a working one: it is answered, and no broker is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.e2e import helpers

from raftwerk.cluster.local.supervisor import Supervisor
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import connect
from raftwerk.wire.codec import encode_request

CREATED = 1_000


def topics(prefix: str, count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"{prefix}{n}"} | more for n in range(count)]


ATTACKS: list[tuple[ApiKey, int, bytes]] = [
    (ApiKey.METADATA, 5, encode_request(ApiKey.METADATA, 5, {"topics": [{"name": ""}] * 400_000})),
    (
        ApiKey.METADATA,
        5,
        encode_request(ApiKey.METADATA, 5, {"topics": topics("no", 50_000), "allow_auto_topic_creation": False}),
    ),
    (
        ApiKey.CREATE_TOPICS,
        7,
        encode_request(
            ApiKey.CREATE_TOPICS,
            7,
            {
                "topics": topics("many", CREATED, num_partitions=1, replication_factor=3, assignments=[], configs=[]),
                "timeout": 30_000,
            },
        ),
    ),
]


def test_floods_and_huge_requests_fence_nobody(new_cluster: Callable[..., Supervisor]) -> None:
    cluster = new_cluster()
    ports = [cluster.plan.node(node).port or 0 for node in (1, 2, 3)]
    versions = encode_request(ApiKey.API_VERSIONS, 0, {})

    async def attack(port: int) -> None:
        connection = await connect("127.0.0.1", port)
        for key, version, body in ATTACKS:
            await connection.send_raw(key, version, [body], timeout_s=60)
        flood = [connection.send_raw(ApiKey.API_VERSIONS, 0, [versions]) for _ in range(16_000)]
        await asyncio.gather(*flood)
        connection.close()

    async def main() -> None:
        neighbour = await connect("127.0.0.1", ports[0])
        attacks = asyncio.gather(*(attack(port) for port in ports))
        answered = 0
        while not attacks.done():
            await neighbour.send_raw(ApiKey.API_VERSIONS, 0, [versions], timeout_s=5)
            answered += 1
            await asyncio.sleep(0.02)
        await attacks
        assert answered > 50
        neighbour.close()

    asyncio.run(main())
    for node in (1, 2, 3):
        assert "broker-fenced" not in Path(cluster.plan.node(node).log_file).read_text()
    assert len(helpers.describe(cluster.plan.bootstrap, "many0").brokers) == 3
