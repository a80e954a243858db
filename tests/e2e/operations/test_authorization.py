"""What a node answers to users with different rights, beside what Apache Kafka 4.2 answered them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support.e2e.clusters import start_cluster
from support.security.authorization_answers import SETTINGS, record
from support.security.kafka_authorization import CALLS, TRANSCRIPT


def test_every_api_answers_users_as_kafka_does(tmp_path: Path) -> None:
    supervisor = start_cluster(tmp_path, 1, overrides=SETTINGS)
    try:
        port = int(supervisor.plan.bootstrap.rpartition(":")[2])
        answers = asyncio.run(record(port, CALLS))
    finally:
        supervisor.stop()
    assert answers.splitlines() == TRANSCRIPT.read_text().splitlines()
