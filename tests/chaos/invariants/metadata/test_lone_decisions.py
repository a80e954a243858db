"""A decision about many partitions is compared with the one about each alone."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.sim.invariants.steps.lone_decisions import LoneDecisionChecker
from raftwerk.controller.metadata.features import METADATA_VERSION_WITH_ELR
from raftwerk.controller.metadata.metadata_image import (
    ELR_FEATURE,
    MetadataDelta,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from raftwerk.controller.metadata.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from raftwerk.controller.partitions import broker_departures
from raftwerk.controller.partitions.partition_change import Goal, PartitionRules, decide_partition_change
from raftwerk.controller.settings import ControllerSettings

TOPIC = UUID(int=70)
SETTINGS = ControllerSettings(1)


def image_with(*elrs: tuple[int, ...]) -> MetadataImage:
    """Partitions that differ in their ELRs alone."""
    image = MetadataImage()
    for broker_id in (1, 2, 3):
        image.restore(RegisterBrokerRecord(broker_id, UUID(int=broker_id), (), fenced=False, epoch=5))
    image.restore(FeatureLevelRecord("metadata.version", METADATA_VERSION_WITH_ELR))
    image.restore(FeatureLevelRecord(ELR_FEATURE, 1))
    image.restore(TopicRecord("t", TOPIC))
    image.restore(ConfigRecord(2, "t", "min.insync.replicas", "3"))
    for index, elr in enumerate(elrs):
        image.restore(PartitionRecord(TOPIC, index, (1, 2, 3), (1, 2), 1, elr=elr))
    return image


def forget_the_elr(
    self: broker_departures._DecisionCache, topic: TopicImage, index: int, partition: PartitionRegistration, goal: Goal
) -> PartitionChangeRecord | None:
    """As if the key of what is remembered lacked it."""
    known = self._known.setdefault((), decide_partition_change(topic.topic_id, index, partition, goal))
    return None if known is None else PartitionChangeRecord(topic.topic_id, index, known.isr, known.leader, known.elr)


def test_decisions_that_are_remembered_rightly() -> None:
    checker = LoneDecisionChecker()
    with checker.watching():
        assert len(broker_departures.remove_broker(image_with((3,), (), (3,)), SETTINGS, 1)) == 3
    checker.check()


def test_a_decision_that_is_remembered_for_another_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_departures._DecisionCache, "decide", forget_the_elr)
    checker = LoneDecisionChecker()
    with checker.watching():
        broker_departures.remove_broker(image_with((3,), (3,)), SETTINGS, 1)
        checker.check()
        broker_departures.remove_broker(image_with((3,), ()), SETTINGS, 1)
    with pytest.raises(InvariantBroken, match=r"is the one about each alone: broker 1 leaves at .*elr="):
        checker.check()


@pytest.mark.parametrize("is_looked_up_anew", [True, False])
def test_rules_of_a_former_image(is_looked_up_anew: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    checker, image = LoneDecisionChecker(), image_with(())
    with checker.watching():
        rules = PartitionRules(image, SETTINGS)
        rules.goal("t", (1,), lambda _: True)
        image.replay(ConfigRecord(2, "t", "min.insync.replicas", "1"), image.offset + 1, MetadataDelta())
        if not is_looked_up_anew:
            monkeypatch.setattr(rules, "_image_offset", image.offset)
        acceptable = bool
        rules.goal("t", (1,), acceptable)
    if is_looked_up_anew:
        checker.check()
    else:
        with pytest.raises(InvariantBroken, match=r"min_insync_replicas=3.*it is .*min_insync_replicas=1"):
            checker.check()
