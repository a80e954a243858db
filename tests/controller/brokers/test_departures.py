"""Decisions for the partitions of a broker that leaves: one that is remembered equals the one made anew."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from raftwerk.controller.metadata.features import METADATA_VERSION_WITH_ELR
from raftwerk.controller.metadata.metadata_image import ELR_FEATURE, MetadataImage
from raftwerk.controller.metadata.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from raftwerk.controller.partitions import broker_departures
from raftwerk.controller.settings import ControllerSettings

SETTINGS = ControllerSettings(1)
_BROKERS = (1, 2, 3)
_LEAVING = 1
_TOPIC = 2
_TOPICS = {"t": UUID(int=71), "u": UUID(int=72)}


def _directory(broker_id: int, disk: int) -> UUID:
    return UUID(int=1000 + 10 * broker_id + disk)


@st.composite
def images(draw: st.DrawFn) -> MetadataImage:
    """Few values of each field, so that many partitions differ in one of them only."""
    image = MetadataImage()
    for broker_id in _BROKERS:
        online = draw(st.sampled_from([(0, 1), (0,), ()]))
        log_dirs = tuple(_directory(broker_id, disk) for disk in online)
        fenced = broker_id != _LEAVING and draw(st.booleans())
        image.restore(
            RegisterBrokerRecord(broker_id, UUID(int=broker_id), (), log_dirs=log_dirs, fenced=fenced, epoch=5)
        )
    if draw(st.booleans()):
        image.restore(FeatureLevelRecord("metadata.version", METADATA_VERSION_WITH_ELR))
        image.restore(FeatureLevelRecord(ELR_FEATURE, 1))
    base = draw(_states())
    for name, topic_id in _TOPICS.items():
        image.restore(TopicRecord(name, topic_id))
        image.restore(ConfigRecord(_TOPIC, name, "min.insync.replicas", draw(st.sampled_from(["1", "2", "3"]))))
        unclean = draw(st.sampled_from(["true", "false"]))
        image.restore(ConfigRecord(_TOPIC, name, "unclean.leader.election.enable", unclean))
        for index in range(draw(st.integers(1, 6))):
            field = draw(st.sampled_from(sorted(base)))
            state = base | {field: draw(_states())[field]}
            image.restore(PartitionRecord(topic_id, index, **_consistent(state)))
    return image


@st.composite
def _states(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "replicas": draw(st.sampled_from([(1, 2, 3), (2, 1, 3), (3, 2, 1)])),
        "isr": draw(st.sampled_from([(1,), (1, 2), (2, 1), (1, 2, 3), (1, 3)])),
        "leader": draw(st.sampled_from([1, 1, 2, 3])),
        "elr": draw(st.sampled_from([(), (2,), (3,), (2, 3)])),
        "last_known_elr": draw(st.sampled_from([(), (2,), (3,)])),
        "directories": tuple(_directory(broker_id, draw(st.integers(0, 1))) for broker_id in _BROKERS),
        "leader_recovery_state": draw(st.sampled_from([0, 0, 1])),
    }


def _consistent(state: dict[str, Any]) -> dict[str, Any]:
    """The leader is in the ISR, and nobody is in more than one of the sets."""
    isr = state["isr"]
    elr = tuple(one for one in state["elr"] if one not in isr)
    known = tuple(one for one in state["last_known_elr"] if one not in isr and one not in elr)
    leader = state["leader"] if state["leader"] in isr else isr[0]
    return state | {"leader": leader, "elr": elr, "last_known_elr": known}


@settings(max_examples=400)
@given(images(), st.booleans())
def test_a_remembered_decision_equals_the_decision_made_anew(image: MetadataImage, unclean: bool) -> None:
    together = broker_departures.remove_broker(image, SETTINGS, _LEAVING, unclean=unclean)
    apart = [
        record
        for one in image.all_partitions()
        for record in broker_departures._replicas_leave(image, SETTINGS, _LEAVING, [one], unclean=unclean)
    ]
    assert sorted(map(repr, together)) == sorted(map(repr, apart))
