"""The coordinator answers as Apache Kafka's: the transcript is what a broker of Apache Kafka 4.2 answered.

`--rewrite-transcripts` with the live test writes it anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.broker.transaction_conversation import TOPIC, Ask, converse
from support.broker.transaction_harness import TransactionHarness, play
from support.log.kafka_written import kafka_broker, kafka_libs
from support.transcripts import check_transcript

from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import Connection, connect
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode

TRANSCRIPT = Path(__file__).parent / "transcripts" / "apache_kafka_4_2.txt"


def check(lines: list[str]) -> None:
    check_transcript(TRANSCRIPT, lambda _: "\n".join(lines) + "\n")


def test_every_answer_is_that_of_apache_kafka() -> None:
    lines: list[str] = []

    async def main(harness: TransactionHarness) -> None:
        async def ask(transactional_id: str, key: ApiKey, version: int, fields: Any) -> Struct:
            return await harness.call(key, version, fields)

        async def pause(seconds: float) -> None:
            harness.wall_ms += round(seconds * 1000)
            await asyncio.sleep(seconds)

        lines.extend(await converse(ask, pause))

    play(main)
    check(lines)


@pytest.mark.java
@pytest.mark.process
def test_apache_kafka_answers_so(tmp_path: Path) -> None:
    with kafka_broker(kafka_libs(), tmp_path) as broker:
        check(asyncio.run(talk_to(broker.bootstrap)))


async def talk_to(bootstrap: str) -> list[str]:
    """The conversation with a cluster of one broker, which is every id's coordinator."""
    host, port = bootstrap.split(":")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 60

    async def until(what: Callable[[Connection], Any]) -> Connection:
        while True:
            assert loop.time() < deadline
            try:
                connection = await connect(host, int(port))
                if await what(connection):
                    return connection
                connection.close()
            except OSError:
                pass
            await asyncio.sleep(0.2)

    async def has_topic(connection: Connection) -> bool:
        row = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        fields = {"topics": [row], "timeout": 5_000, "validate_only": False}
        answer = await connection.request(ApiKey.CREATE_TOPICS, 7, fields)
        return answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    async def has_coordinator(connection: Connection) -> bool:
        answer = await connection.request(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["t0"]})
        return not answer.coordinators[0].error_code

    (await until(has_topic)).close()
    connection = await until(has_coordinator)

    async def ask(transactional_id: str, key: ApiKey, version: int, fields: Any) -> Struct:
        return await connection.request(key, version, fields)

    sender: Ask = ask
    try:
        return await converse(sender, asyncio.sleep)
    finally:
        connection.close()
