from __future__ import annotations

from pathlib import Path
from typing import ClassVar
from uuid import UUID

import pytest
from support.broker.consumer_transcript import run_transcript, transcripts
from support.transcripts import check_transcript

from raftwerk.broker.groups.consumer.consumer_group import ConsumerGroup
from raftwerk.broker.groups.consumer.consumer_group_heartbeat import HeartbeatRequest
from raftwerk.broker.groups.group_config import GroupConfig


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    check_transcript(path, run_transcript)


class _TwoTopics:
    """Topics of one partition, `open` and `secret`."""

    ids: ClassVar[dict[str, UUID]] = {"open": UUID(int=1), "secret": UUID(int=2)}

    def find(self, name: str) -> tuple[UUID, int] | None:
        return (self.ids[name], 1) if name in self.ids else None

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name, known in self.ids.items() if known == topic_id), None)

    def names(self) -> list[str]:
        return sorted(self.ids)


def test_a_regular_expression_matches_what_the_member_may_see() -> None:
    """After a change of the coordinator, what a member may see is known from its first heartbeat on."""
    group = ConsumerGroup("g", GroupConfig(), _TwoTopics())
    joins = HeartbeatRequest("m", 0, rebalance_timeout_ms=1000, topic_names=(), topic_regex=".*", owned=())
    group.heartbeat(joins, "joins", 0, 0)
    assert group.subscribed_topics() == ("open", "secret")
    stays = HeartbeatRequest("m", group.members["m"].epoch, may_see=lambda name: name == "open")
    group.heartbeat(stays, "stays", 1, 1)
    assert group.subscribed_topics() == ("open",)
    assert group.target["m"] == ((UUID(int=1), 0),)
    assert group.members["m"].assigned == ((UUID(int=1), 0),)
