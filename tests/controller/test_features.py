"""UpdateFeatures: all updates or none, in the allowed direction, and to levels that all nodes know."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from support.controller.controller_harness import decided, decoded

from raftwerk.controller.metadata.features import (
    SUPPORTED_FEATURES,
    check_supported,
    transaction_version,
    update_features,
)
from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import (
    BrokerChangeRecord,
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode, ProtocolError

ELR = "eligible.leader.replicas.version"
RECORDS = "raftwerk.record.version"
TRANSACTIONS = "transaction.version"
TOPIC = UUID(int=1)
CLUSTER_MIN_ISR = ConfigRecord(4, "", "min.insync.replicas", "2")


def image_of(*records: Record) -> MetadataImage:
    image = MetadataImage("c")
    for offset, record in enumerate((FeatureLevelRecord("metadata.version", 29), *records)):
        image.replay(record, offset, MetadataDelta())
    return image


class Kraft:
    """The quorum's part, which refuses the levels that a test names."""

    def __init__(self, level: int = 0, *, refuses: bool = False) -> None:
        self.level = level
        self.refuses = refuses
        self.voter_ids = (1, 2)

    def upgrade(self, level: int, *, validate_only: bool) -> int:
        if self.refuses:
            raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, "not now")
        if not validate_only:
            self.level = level
        return 77


def ask(
    image: MetadataImage, *updates: tuple[str, int, int], kraft: Kraft | None = None, **more: Any
) -> tuple[list[Record], int]:
    rows = [{"feature": name, "max_version_level": level, "upgrade_type": kind} for name, level, kind in updates]
    request = decoded(ApiKey.UPDATE_FEATURES, feature_updates=rows, **more)
    result = decided(update_features(image, request, kraft or Kraft(), SUPPORTED_FEATURES, 2))
    return result.records, result.response["error_code"]


def broker(*features: tuple[str, int, int]) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(1, UUID(int=5), (Endpoint("PLAINTEXT", "h", 1),), fenced=False, features=features)


def test_elr_can_be_switched_on_and_off() -> None:
    assert ask(image_of(), (ELR, 1, 1)) == ([CLUSTER_MIN_ISR, FeatureLevelRecord(ELR, 1)], 0)
    assert ask(image_of(), (ELR, 1, 1), validate_only=True) == ([], 0)
    assert ask(image_of(FeatureLevelRecord(ELR, 1)), (ELR, 0, 2)) == ([FeatureLevelRecord(ELR, 0)], 0)
    assert ask(image_of(), ("metadata.version", 29, 1)) == ([], 0)


def test_elr_takes_the_brokers_own_min_insync_replicas_away() -> None:
    """As in Apache Kafka: a leader would commit by another value than that by which the controller keeps the ELR."""
    name, other = "min.insync.replicas", "log.retention.ms"
    values = [ConfigRecord(4, broker_id, key, "1") for broker_id in ("", "1", "2") for key in (name, other)]
    removed = [ConfigRecord(4, broker_id, name, None) for broker_id in ("1", "2")]
    assert ask(image_of(*values), (ELR, 1, 1)) == ([*removed, FeatureLevelRecord(ELR, 1)], 0)
    on = image_of(FeatureLevelRecord(ELR, 1), *values)
    assert ask(on, (ELR, 0, 2)) == ([FeatureLevelRecord(ELR, 0)], 0)


@pytest.mark.parametrize(
    "update",
    [
        ("nonsense", 1, 1),
        (ELR, 2, 1),
        (ELR, 0, 1),
        (ELR, 0, 7),
        ("metadata.version", 28, 1),
        ("metadata.version", 22, 2),
        ("metadata.version", 22, 3),
        ("metadata.version", 30, 1),
        (RECORDS, 2, 1),
        ("kraft.version", 2, 1),
    ],
)
def test_refusals(update: tuple[str, int, int]) -> None:
    assert ask(image_of(FeatureLevelRecord(ELR, 1)), update) == ([], ErrorCode.INVALID_UPDATE_VERSION)


def test_the_quorum_decides_on_kraft_version() -> None:
    kraft = Kraft()
    assert ask(image_of(), ("kraft.version", 1, 1), kraft=kraft, validate_only=True) == ([], 0)
    assert kraft.level == 0
    assert ask(image_of(), ("kraft.version", 1, 1), ("nonsense", 1, 1), kraft=kraft)[1]
    assert kraft.level == 0
    assert ask(image_of(), ("kraft.version", 1, 1), (ELR, 1, 1), kraft=kraft) == (
        [CLUSTER_MIN_ISR, FeatureLevelRecord(ELR, 1)],
        0,
    )
    assert kraft.level == 1
    assert ask(image_of(), ("kraft.version", 1, 1), kraft=Kraft(1, refuses=True)) == ([], 0), "nothing to do"
    assert ask(image_of(), ("kraft.version", 0, 2), kraft=Kraft(1, refuses=True))[1]
    assert ask(image_of(), ("kraft.version", 1, 1), kraft=Kraft(refuses=True))[1] == ErrorCode.INVALID_UPDATE_VERSION
    assert ask(image_of(broker(("kraft.version", 0, 0))), ("kraft.version", 1, 1))[1]


def test_metadata_version_moves_as_in_kafka() -> None:
    assert ask(image_of(), ("metadata.version", 23, 2)) == ([FeatureLevelRecord("metadata.version", 23)], 0)
    low = image_of(FeatureLevelRecord("metadata.version", 23))
    assert ask(low, ("metadata.version", 29, 1)) == ([FeatureLevelRecord("metadata.version", 29)], 0)
    assert ask(low, ("metadata.version", 22, 2)) == ([], ErrorCode.INVALID_UPDATE_VERSION)
    old = image_of(FeatureLevelRecord("metadata.version", 7))
    for level in (14, 22, 23):  # an upgrade loses nothing, also to a level from which there is no way back
        assert ask(old, ("metadata.version", level, 1)) == ([FeatureLevelRecord("metadata.version", level)], 0)


def controller(node_id: int, *features: tuple[str, int, int]) -> RegisterControllerRecord:
    return RegisterControllerRecord(node_id, UUID(int=node_id), (Endpoint("C", "h", 1),), features)


def test_the_record_version_changes_when_all_nodes_know_it() -> None:
    """All registered brokers and all voters must have registered with the level."""
    knows = (RECORDS, 0, 1)
    voters = [controller(1, knows), controller(2, knows)]
    up, down = (RECORDS, 1, 1), (RECORDS, 0, 2)
    assert ask(image_of(broker(knows), *voters), up) == ([FeatureLevelRecord(RECORDS, 1)], 0)
    assert ask(image_of(broker(), *voters), up)[1] == ErrorCode.INVALID_UPDATE_VERSION
    assert ask(image_of(broker(knows), *voters[:1]), up)[1] == ErrorCode.INVALID_UPDATE_VERSION
    assert ask(image_of(broker(knows), voters[0], controller(2)), up)[1] == ErrorCode.INVALID_UPDATE_VERSION
    compact = image_of(FeatureLevelRecord(RECORDS, 1), broker(knows), *voters)
    assert ask(compact, down) == ([FeatureLevelRecord(RECORDS, 0)], 0)
    assert ask(compact, (RECORDS, 0, 1))[1] == ErrorCode.INVALID_UPDATE_VERSION
    with pytest.raises(ProtocolError, match=r"does not support finalized version 1 of raftwerk\.record\.version"):
        check_supported(compact, (), "broker")
    check_supported(image_of(), (), "broker")


def test_the_transaction_version_goes_up_and_down_when_all_nodes_know_it() -> None:
    """A cluster of older software has 0 until it is raised; a node without the feature is refused from then on."""
    knows = (TRANSACTIONS, 0, 2)
    voters = [controller(1, knows), controller(2, knows)]
    assert transaction_version(image_of()) == 0
    assert ask(image_of(broker(knows), *voters), (TRANSACTIONS, 2, 1)) == ([FeatureLevelRecord(TRANSACTIONS, 2)], 0)
    assert ask(image_of(broker(knows), *voters), (TRANSACTIONS, 3, 1))[1] == ErrorCode.INVALID_UPDATE_VERSION
    assert ask(image_of(broker(), *voters), (TRANSACTIONS, 1, 1))[1] == ErrorCode.INVALID_UPDATE_VERSION
    assert ask(image_of(broker(knows), *voters[:1]), (TRANSACTIONS, 1, 1))[1] == ErrorCode.INVALID_UPDATE_VERSION
    raised = image_of(FeatureLevelRecord(TRANSACTIONS, 2), broker(knows), *voters)
    assert transaction_version(raised) == 2
    assert ask(raised, (TRANSACTIONS, 1, 1))[1] == ErrorCode.INVALID_UPDATE_VERSION
    assert ask(raised, (TRANSACTIONS, 0, 2)) == ([FeatureLevelRecord(TRANSACTIONS, 0)], 0)
    with pytest.raises(ProtocolError, match=r"does not support finalized version 2 of transaction\.version"):
        check_supported(raised, (), "broker")


def test_one_refusal_refuses_all() -> None:
    assert ask(image_of(), (ELR, 1, 1), ("nonsense", 1, 1)) == ([], ErrorCode.INVALID_UPDATE_VERSION)
    assert ask(image_of(), (ELR, 1, 1), (ELR, 1, 1)) == ([], ErrorCode.INVALID_REQUEST)


def test_brokers_must_know_the_level() -> None:
    assert ask(image_of(broker((ELR, 0, 0))), (ELR, 1, 1)) == ([], ErrorCode.INVALID_UPDATE_VERSION)
    assert ask(image_of(broker((ELR, 0, 1))), (ELR, 1, 1))[1] == 0


def test_switching_elr_off_empties_elrs_unless_one_is_needed() -> None:
    base: list[Record] = [
        FeatureLevelRecord(ELR, 1),
        broker(),
        TopicRecord("t", TOPIC),
        PartitionRecord(TOPIC, 0, (1, 2), (1,), 1, elr=(2,)),
    ]
    assert ask(image_of(*base), (ELR, 0, 2)) == (
        [PartitionChangeRecord(TOPIC, 0, elr=(), last_known_elr=()), FeatureLevelRecord(ELR, 0)],
        0,
    )
    gone: list[Record] = [
        BrokerChangeRecord(1, 2, fenced=True),
        PartitionChangeRecord(TOPIC, 0, isr=(), leader=-1, elr=(1, 2)),
    ]
    assert ask(image_of(*base, *gone), (ELR, 0, 2)) == ([], ErrorCode.INVALID_UPDATE_VERSION)


def test_group_version_is_fixed() -> None:
    """group.version is 1 without a record, and cannot change."""
    assert ask(image_of(), ("group.version", 1, 1)) == ([], ErrorCode.NONE)
    assert ask(image_of(), ("group.version", 0, 2)) == ([], ErrorCode.INVALID_UPDATE_VERSION)
    assert ask(image_of(), ("group.version", 2, 1)) == ([], ErrorCode.INVALID_UPDATE_VERSION)
