"""With eligible leader replicas, leaders and controllers go by one `min.insync.replicas`, which the metadata have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.controller.controller_harness import Harness, MemoryQuorum, decoded, scenario

from raftwerk.controller.configs.effective_configs import resolve
from raftwerk.controller.metadata.metadata_image import BROKER_RESOURCE, ELR_FEATURE
from raftwerk.controller.metadata.metadata_records import ConfigRecord, encode_record
from raftwerk.controller.settings import ControllerSettings
from raftwerk.wire.api_keys import ApiKey

MIN_ISR = "min.insync.replicas"
SETTINGS = ControllerSettings(1, default_replication_factor=3, topic_defaults={MIN_ISR: "2"})
WITHOUT_ELR = replace(SETTINGS, bootstrap_features={ELR_FEATURE: 0})


def cluster_value(harness: Harness) -> Any:
    return harness.image.configs.get((BROKER_RESOURCE, ""), {}).get(MIN_ISR)


def leaders_value(harness: Harness) -> str:
    """The value by which a leader of the topic goes, whose file has none."""
    return resolve(harness.image, "t", MIN_ISR, {}, broker_id=1)[0]


async def switch_elr(harness: Harness, level: int, **more: Any) -> None:
    kind = 1 if level else 2
    update = {"feature": ELR_FEATURE, "max_version_level": level, "upgrade_type": kind}
    answer = await harness.controller.update_features(decoded(ApiKey.UPDATE_FEATURES, feature_updates=[update], **more))
    assert answer["error_code"] == 0, answer


async def with_shrunk_isr(settings: ControllerSettings) -> Harness:
    """A topic on the brokers 1, 2 and 3, whose leader 1 has taken the others out of the ISR."""
    harness = Harness(settings)
    for broker_id in (1, 2, 3):
        await harness.add_broker(broker_id)
    await shrink(harness, "t", await harness.create("t", (1, 2, 3)))
    return harness


async def shrink(harness: Harness, topic: str, topic_id: Any) -> None:
    partition, epoch = harness.partition(topic), harness.image.brokers[1].epoch
    row = {
        "partition_index": 0,
        "leader_epoch": partition.leader_epoch,
        "new_isr_with_epochs": [{"broker_id": 1, "broker_epoch": epoch}],
        "leader_recovery_state": 0,
        "partition_epoch": partition.partition_epoch,
    }
    topics = [{"topic_id": topic_id, "partitions": [row]}]
    request = decoded(ApiKey.ALTER_PARTITION, broker_id=1, broker_epoch=epoch, topics=topics)
    answer = await harness.controller.alter_partition(request)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer


def forget_cluster_value(quorum: MemoryQuorum, epoch: int) -> None:
    """Leave the metadata log as a controller of older software does, which records no value."""
    quorum.append([encode_record(ConfigRecord(BROKER_RESOURCE, "", MIN_ISR, None), 0)], epoch)
    quorum.commit()
    quorum.elect(None, epoch + 1)


@scenario
async def test_a_new_cluster_has_the_value_of_its_first_active_controller() -> None:
    harness = await with_shrunk_isr(SETTINGS)
    assert leaders_value(harness) == "2", "the leader does not acknowledge alone, whatever its file says"
    assert harness.partition("t").elr == (2, 3)
    harness.quorum.elect(None, 2)
    assert cluster_value(harness) == "2", "it is committed"


@scenario
async def test_a_file_without_a_value_gives_the_default() -> None:
    assert cluster_value(Harness()) == "1"


@scenario
async def test_the_next_active_controller_keeps_the_value() -> None:
    first = Harness(SETTINGS)
    first.quorum.commit()
    second = Harness(replace(SETTINGS, topic_defaults={MIN_ISR: "3"}), elect=False)
    second.quorum.batches = [*first.quorum.batches]
    second.quorum.elect(1, 2)
    assert cluster_value(second) == "2"


@scenario
async def test_without_elr_each_node_goes_by_its_own_file() -> None:
    harness = Harness(WITHOUT_ELR)
    assert cluster_value(harness) is None


@scenario
async def test_the_cluster_gets_a_value_when_elr_is_switched_on() -> None:
    harness = await with_shrunk_isr(WITHOUT_ELR)
    await switch_elr(harness, 1, validate_only=True)
    assert cluster_value(harness) is None
    await switch_elr(harness, 1)
    assert cluster_value(harness) == "2"
    assert leaders_value(harness) == "2"


@scenario
async def test_a_value_that_the_cluster_has_is_kept_when_elr_is_switched_on() -> None:
    harness = Harness(WITHOUT_ELR)
    row = {"name": MIN_ISR, "config_operation": 0, "value": "3"}
    rows = [{"resource_type": BROKER_RESOURCE, "resource_name": "", "configs": [row]}]
    await harness.controller.incremental_alter_configs(decoded(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=rows))
    await switch_elr(harness, 1)
    assert cluster_value(harness) == "3"
    await switch_elr(harness, 0)
    assert cluster_value(harness) == "3"


@scenario
async def test_a_cluster_of_older_software_gets_a_value_and_loses_elrs_that_may_be_wrong() -> None:
    """Its leader may have gone by 1 and have acknowledged alone what the members of the ELR miss."""
    harness = await with_shrunk_isr(SETTINGS)
    forget_cluster_value(harness.quorum, 1)
    assert (cluster_value(harness), harness.partition("t").elr) == (None, (2, 3))
    harness.quorum.elect(1, 3)
    assert (cluster_value(harness), harness.partition("t").elr) == ("2", ())
    await harness.controller.broker_heartbeat(harness.heartbeat(1, want_fence=True))
    assert harness.partition("t").leader == -1, "only broker 1 is known to have all that it acknowledged"
