"""The active controller: order of requests, commit, leadership, sessions, probes."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from support.controller.controller_harness import Harness, decoded, scenario

from raftwerk.controller.brokers.broker_fencing import STALL_MS
from raftwerk.controller.brokers.listener_probe import ProbeResult
from raftwerk.controller.metadata.metadata_image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from raftwerk.controller.metadata.metadata_records import RECOVERING, BrokerChangeRecord, RegisterBrokerRecord
from raftwerk.controller.settings import ControllerSettings
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode


@scenario
async def test_bootstrap_finalizes_features_once() -> None:
    harness = Harness()
    await asyncio.sleep(0)
    assert harness.quorum.loader.image.features == {
        "metadata.version": 29,
        "eligible.leader.replicas.version": 1,
        "raftwerk.record.version": 2,
        "transaction.version": 2,
    }
    end = harness.quorum.log_end_offset()
    harness.quorum.elect(None, 2)
    harness.quorum.elect(1, 3)
    assert harness.quorum.log_end_offset() == end + 1


@scenario
async def test_broker_epoch_is_the_offset_of_the_record() -> None:
    harness = Harness()
    response = await harness.controller.register_broker(harness.registration(1))
    offsets = [offset for offset, record in harness.quorum.records() if isinstance(record, RegisterBrokerRecord)]
    assert offsets == [response["broker_epoch"]]
    again = await harness.controller.register_broker(harness.registration(1))
    assert again["broker_epoch"] == response["broker_epoch"]


@scenario
async def test_responses_wait_for_commit_and_keep_their_order() -> None:
    harness = Harness()
    harness.quorum.commit()
    harness.quorum.auto_commit = False
    first = harness.controller.register_broker(harness.registration(1))
    unfenced = harness.controller.broker_heartbeat(harness.heartbeat(1))
    reading = harness.controller.broker_heartbeat(harness.heartbeat(1))
    await asyncio.sleep(0.1)
    assert not first.done() and not unfenced.done() and not reading.done()
    harness.quorum.commit()
    assert first.done() and unfenced.done() and reading.done()
    assert reading.result()["is_fenced"] is False


@scenario
async def test_loss_of_leadership_answers_pending_requests_and_drops_their_records() -> None:
    harness = Harness()
    harness.quorum.commit()
    harness.quorum.auto_commit = False
    pending = harness.controller.register_broker(harness.registration(1))
    harness.quorum.elect(2, 2)
    assert pending.result()["error_code"] == ErrorCode.NOT_CONTROLLER
    harness.quorum.drop_uncommitted()
    assert harness.image.brokers == {} and not harness.controller.active
    refused = await harness.controller.create_topics(decoded(ApiKey.CREATE_TOPICS, topics=[{"name": "t"}]))
    assert [row["error_code"] for row in refused["topics"]] == [ErrorCode.NOT_CONTROLLER]


@scenario
async def test_an_append_after_the_loss_of_leadership_ends_it() -> None:
    harness = Harness()
    harness.quorum.leader = harness.quorum.leader.__class__(2, 2)
    response = await harness.controller.register_broker(harness.registration(1))
    assert response["error_code"] == ErrorCode.NOT_CONTROLLER
    assert not harness.controller.active and harness.image.brokers == {}


@scenario
async def test_a_silent_broker_is_fenced_when_its_session_ends_and_not_before() -> None:
    harness = Harness()
    await harness.add_broker(1)
    await harness.add_broker(2)
    await harness.create("t", (2, 1))
    start = asyncio.get_running_loop().time()
    for _ in range(4):
        await asyncio.sleep(2)
        await harness.controller.broker_heartbeat(harness.heartbeat(1))
    assert harness.image.brokers[2].fenced is False
    await asyncio.sleep(1.1)
    assert asyncio.get_running_loop().time() - start < 9.2
    assert harness.image.brokers[2].fenced and not harness.image.brokers[1].fenced
    assert harness.partition("t").leader == 1


@scenario
async def test_a_dead_process_is_fenced_at_once() -> None:
    harness = Harness()
    for broker_id in (1, 2, 3):
        await harness.add_broker(broker_id)
    await harness.create("t", (2, 1, 3))
    harness.probes.down[("b2", 9092)] = ProbeResult.REFUSED
    await asyncio.sleep(0.05)
    assert harness.probes.asked == []
    harness.controller.on_broker_disconnected(2)
    await asyncio.sleep(0.01)
    assert harness.image.brokers[2].fenced
    assert harness.partition("t").leader == 1
    # Its next incarnation need not wait for the end of the session.
    await harness.add_broker(2, incarnation=2)


@scenario
async def test_a_listener_that_outlives_the_connection_is_probed_again() -> None:
    harness = Harness()
    await harness.add_broker(1)
    harness.controller.on_broker_disconnected(1)
    await asyncio.sleep(0.02)
    harness.probes.down[("b1", 9092)] = ProbeResult.REFUSED
    await asyncio.sleep(0.06)
    assert harness.image.brokers[1].fenced


@scenario
async def test_a_broker_that_only_lost_its_connection_keeps_its_session() -> None:
    harness = Harness()
    await harness.add_broker(1)
    harness.probes.down[("b1", 9092)] = ProbeResult.UNKNOWN
    harness.controller.on_broker_disconnected(1)
    await asyncio.sleep(5)
    assert not harness.image.brokers[1].fenced and len(harness.probes.asked) == 8
    await asyncio.sleep(5)
    assert harness.image.brokers[1].fenced


@scenario
async def test_a_new_controller_probes_all_brokers_and_gives_them_a_session() -> None:
    harness = Harness()
    for broker_id in (1, 2, 3):
        await harness.add_broker(broker_id)
    await asyncio.sleep(8)
    harness.quorum.elect(2, 2)
    harness.probes.down[("b3", 9092)] = ProbeResult.REFUSED
    harness.quorum.elect(1, 3)
    await asyncio.sleep(0.01)
    assert {broker_id: broker.fenced for broker_id, broker in harness.image.brokers.items()} == {
        1: False,
        2: False,
        3: True,
    }
    await harness.controller.broker_heartbeat(harness.heartbeat(1))
    asked = len(harness.probes.asked)
    await asyncio.sleep(2)
    assert ("b1", 9092) not in harness.probes.asked[asked:] and ("b2", 9092) in harness.probes.asked[asked:]
    await asyncio.sleep(6.5)
    assert not harness.image.brokers[1].fenced and not harness.image.brokers[2].fenced
    await asyncio.sleep(1)
    assert harness.image.brokers[1].fenced and harness.image.brokers[2].fenced


@scenario
async def test_a_dead_broker_with_an_open_connection_is_found_by_its_silence() -> None:
    """The packets that close the connection were lost, or the connection is older than this leadership."""
    harness = Harness()
    await harness.add_broker(1)
    harness.probes.down[("b1", 9092)] = ProbeResult.REFUSED
    for _ in range(5):
        await asyncio.sleep(2)
        await harness.controller.broker_heartbeat(harness.heartbeat(1))
    assert harness.probes.asked == []
    await asyncio.sleep(2.9)
    assert not harness.image.brokers[1].fenced
    await asyncio.sleep(0.2)
    assert harness.image.brokers[1].fenced
    await harness.add_broker(1, incarnation=2)


@scenario
async def test_a_broker_that_dies_before_its_first_heartbeat_to_a_new_controller_is_fenced() -> None:
    """It was cut off from the other nodes, so the new controller has no connection to it."""
    harness = Harness()
    await harness.add_broker(1)
    harness.quorum.elect(2, 2)
    harness.quorum.elect(1, 3)
    await asyncio.sleep(3)
    assert not harness.image.brokers[1].fenced
    harness.probes.down[("b1", 9092)] = ProbeResult.REFUSED
    await asyncio.sleep(1.1)
    assert harness.image.brokers[1].fenced
    asked = len(harness.probes.asked)
    await asyncio.sleep(5)
    assert len(harness.probes.asked) == asked


@scenario
async def test_a_broker_that_is_silent_and_listens_keeps_its_session() -> None:
    harness = Harness()
    await harness.add_broker(1)
    await asyncio.sleep(8.9)
    assert harness.probes.asked and not harness.image.brokers[1].fenced
    await asyncio.sleep(0.2)
    assert harness.image.brokers[1].fenced


@scenario
async def test_a_controller_that_did_not_run_fences_no_broker_for_it() -> None:
    harness = Harness()
    await harness.add_broker(1)
    loop = asyncio.get_running_loop()
    loop._virtual.now += 30 + STALL_MS / 1_000  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    await harness.controller.broker_heartbeat(harness.heartbeat(1))
    await asyncio.sleep(1)
    assert not harness.image.brokers[1].fenced


@scenario
async def test_an_idle_controller_has_no_timers() -> None:
    harness = Harness(ControllerSettings(1, broker_session_timeout_ms=9_000))
    await asyncio.sleep(60)
    fired = 0
    loop = asyncio.get_running_loop()
    original = loop.call_at

    def counting(*arguments: object, **more: object) -> asyncio.TimerHandle:
        nonlocal fired
        fired += 1
        return original(*arguments, **more)  # type: ignore[arg-type]

    loop.call_at = counting  # type: ignore[method-assign]
    await asyncio.sleep(600)
    assert fired == 1 and harness.controller.active


@scenario
async def test_another_incarnation_waits_for_the_session_unless_the_same_broker_restarted() -> None:
    harness = Harness()
    await harness.add_broker(1)
    refused = await harness.controller.register_broker(harness.registration(1, incarnation=2))
    assert refused["error_code"] == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    harness.controller.on_broker_disconnected(1)
    elsewhere = [{"name": "PLAINTEXT", "host": "elsewhere", "port": 9092, "security_protocol": 0}]
    refused = await harness.controller.register_broker(harness.registration(1, incarnation=3, listeners=elsewhere))
    assert refused["error_code"] == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    accepted = await harness.controller.register_broker(harness.registration(1, incarnation=2))
    assert accepted["error_code"] == 0 and harness.image.brokers[1].fenced
    await asyncio.sleep(9.1)
    accepted = await harness.controller.register_broker(harness.registration(1, incarnation=3, listeners=elsewhere))
    assert accepted["error_code"] == 0


@scenario
async def test_controlled_shutdown_moves_leaders_and_waits_until_the_others_know() -> None:
    harness = Harness()
    for broker_id in (1, 2, 3):
        await harness.add_broker(broker_id)
    await harness.create("t", (1, 2, 3), (2, 3, 1))
    leaving = await harness.controller.broker_heartbeat(harness.heartbeat(1, want_shut_down=True))
    assert leaving["should_shut_down"] is False and leaving["is_fenced"] is False
    assert harness.partition("t").leader == 2 and harness.partition("t").isr == (2, 3)
    await harness.controller.broker_heartbeat(harness.heartbeat(2))
    leaving = await harness.controller.broker_heartbeat(harness.heartbeat(1, want_shut_down=True))
    assert leaving["should_shut_down"] is False
    await harness.controller.broker_heartbeat(harness.heartbeat(3))
    leaving = await harness.controller.broker_heartbeat(harness.heartbeat(1, want_shut_down=True))
    assert leaving["should_shut_down"] is True
    assert harness.image.brokers[1].fenced


@scenario
async def test_preferred_leaders_lead_again_some_time_after_the_isr_grew() -> None:
    harness = Harness(ControllerSettings(1, broker_session_timeout_ms=60_000))
    for broker_id in (1, 2):
        await harness.add_broker(broker_id)
    topic_id = await harness.create("t", (1, 2))
    await harness.controller.broker_heartbeat(harness.heartbeat(1, want_fence=True))
    await harness.controller.broker_heartbeat(harness.heartbeat(1))
    partition = harness.partition("t")
    assert partition.leader == 2 and partition.isr == (2,)
    await asyncio.sleep(30)
    response = await harness.controller.alter_partition(alter(harness, 2, topic_id, (2, 1)))
    assert response["topics"][0]["partitions"][0]["error_code"] == 0
    assert harness.partition("t").leader == 2
    await asyncio.sleep(5.1)
    assert harness.partition("t").leader == 1 and harness.partition("t").leader_epoch == partition.leader_epoch + 1


def alter(harness: Harness, broker_id: int, topic_id: UUID, isr: tuple[int, ...]) -> Any:
    partition = harness.image.topics_by_id[topic_id].partitions[0]
    members = [{"broker_id": b, "broker_epoch": harness.image.brokers[b].epoch} for b in isr]
    row = {
        "partition_index": 0,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "new_isr_with_epochs": members,
        "leader_recovery_state": 0,
    }
    epoch = harness.image.brokers[broker_id].epoch
    return decoded(
        ApiKey.ALTER_PARTITION,
        broker_id=broker_id,
        broker_epoch=epoch,
        topics=[{"topic_id": topic_id, "partitions": [row]}],
    )


@scenario
async def test_close_answers_pending_requests_and_is_final() -> None:
    harness = Harness()
    harness.quorum.commit()
    harness.quorum.auto_commit = False
    pending = harness.controller.register_broker(harness.registration(1))
    harness.controller.close()
    assert pending.result()["error_code"] == ErrorCode.NOT_CONTROLLER
    harness.quorum.elect(1, 5)
    assert not harness.controller.active


@scenario
async def test_the_image_ahead_of_commit_is_the_committed_image_once_committed() -> None:
    harness = Harness()
    for broker_id in (1, 2, 3):
        await harness.add_broker(broker_id)
    await harness.create("t", (1, 2, 3))
    await harness.controller.broker_heartbeat(harness.heartbeat(2, want_fence=True))
    await harness.controller.allocate_producer_ids(
        decoded(ApiKey.ALLOCATE_PRODUCER_IDS, broker_id=1, broker_epoch=harness.image.brokers[1].epoch)
    )
    assert harness.image is not harness.quorum.loader.image
    assert harness.image == harness.quorum.loader.image
    replayed = MetadataImage("cluster-a")
    assert replayed != harness.image
    assert [r for _, r in harness.quorum.records() if isinstance(r, BrokerChangeRecord) and r.fenced]


async def without_leader(harness: Harness) -> None:
    """Broker 2 is alive and out of sync; broker 1, which has all records, is dead."""
    for broker in (1, 2):
        await harness.add_broker(broker)
    await harness.create("t", [1, 2])
    await harness.controller.broker_heartbeat(harness.heartbeat(2, want_fence=True))
    await harness.controller.broker_heartbeat(harness.heartbeat(1, want_fence=True))
    await harness.controller.broker_heartbeat(harness.heartbeat(2))
    assert harness.partition("t").leader == -1


async def configure(harness: Harness, kind: int, name: str, value: str) -> None:
    change = {"name": "unclean.leader.election.enable", "config_operation": 0, "value": value}
    resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
    answer = await harness.controller.incremental_alter_configs(
        decoded(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False)
    )
    assert answer["responses"][0]["error_code"] == 0, answer
    await asyncio.sleep(0)


@scenario
async def test_allowing_unclean_elections_elects_at_once() -> None:
    """For topics that allow it, and for partitions without a leader."""
    for kind, name in ((TOPIC_RESOURCE, "t"), (BROKER_RESOURCE, "")):
        harness = Harness()
        await without_leader(harness)
        await harness.create("led", [2])
        await harness.create("other", [2])
        before = harness.partition("led")
        await configure(harness, TOPIC_RESOURCE, "other", "true")
        await configure(harness, kind, name, "false")
        assert harness.partition("t").leader == -1
        await configure(harness, kind, name, "true")
        found = harness.partition("t")
        assert (found.leader, found.isr, found.leader_recovery_state) == (2, (2,), RECOVERING)
        assert harness.partition("led") == before
