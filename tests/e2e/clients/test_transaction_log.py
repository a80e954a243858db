"""Markers, reads and lists of producers say the same as with Apache Kafka 4.2, from which they were recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support.e2e.transaction_log_conversation import LogConversation
from support.transcripts import check_transcript

from raftwerk.cluster.client.cluster_client import ClusterClient

TRANSCRIPT = Path(__file__).parent / "transcripts" / "transaction_log.txt"


def test_the_log_of_transactions(bootstrap: str, topic: str) -> None:
    async def play(transcript: str) -> str:
        async with ClusterClient(bootstrap) as client:
            return await LogConversation(client, topic).play(transcript)

    check_transcript(TRANSCRIPT, lambda transcript: asyncio.run(play(transcript)))
