"""Decisions in parts: what happens when leadership is lost, or the metadata change, between two parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from support.controller.controller_harness import Harness, decoded, run, scenario

from raftwerk.controller.configs import alter_configs
from raftwerk.controller.metadata import features
from raftwerk.controller.metadata.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    Record,
    encode_record,
)
from raftwerk.controller.partitions import eligible_leader_replicas
from raftwerk.controller.term import PART_PAUSE_S
from raftwerk.controller.topics import create_topics
from raftwerk.runtime import incremental_work
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

PER_STEP, COUNT = 4, 24
NAMES = [f"t{number}" for number in range(COUNT)]
DIRECTORY, OTHER_DIRECTORY = UUID(int=500), UUID(int=501)
RETENTION = {"name": "retention.ms", "config_operation": 0, "value": "5"}


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(incremental_work, "ITEMS_PER_STEP", PER_STEP)
    monkeypatch.setattr(create_topics, "PARTITIONS_PER_BATCH", PER_STEP)
    monkeypatch.setattr(alter_configs, "ELRS_PER_BATCH", PER_STEP)
    monkeypatch.setattr(features, "ELRS_PER_BATCH", PER_STEP)
    monkeypatch.setattr(eligible_leader_replicas, "ELRS_PER_BATCH", PER_STEP)
    yield


async def cluster(leader: int = 1) -> Harness:
    harness = Harness()
    for broker_id in (1, 2, 3):
        await harness.add_broker(broker_id, log_dirs=[DIRECTORY, OTHER_DIRECTORY] if broker_id == 1 else [])
    for name in NAMES:
        await harness.create(name, (1, 2))
    if leader == 2:
        await harness.controller.broker_heartbeat(harness.heartbeat(1, want_fence=True))
        await harness.controller.broker_heartbeat(harness.heartbeat(1))
        for name in NAMES:
            await harness.controller.alter_partition(isr_request(harness, [name], 2))
        assert {harness.partition(name).leader for name in NAMES} == {2}
    return harness


def isr_request(harness: Harness, names: list[str], leader: int, isr: tuple[int, ...] = (1, 2)) -> Any:
    topics = []
    for name in names:
        partition, topic_id = harness.partition(name), harness.image.topics_by_name[name].topic_id
        row = {
            "partition_index": 0,
            "leader_epoch": partition.leader_epoch,
            "new_isr_with_epochs": [{"broker_id": one, "broker_epoch": -1} for one in isr],
            "leader_recovery_state": 0,
            "partition_epoch": partition.partition_epoch,
        }
        topics.append({"topic_id": topic_id, "partitions": [row]})
    epoch = harness.image.brokers[leader].epoch
    return decoded(ApiKey.ALTER_PARTITION, broker_id=leader, broker_epoch=epoch, topics=topics)


def resources(*names: str, configs: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    rows = [RETENTION] if configs is None else configs
    return [{"resource_type": 2, "resource_name": name, "configs": rows} for name in names]


def configured(harness: Harness, *names: str) -> Any:
    request = decoded(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=resources(*names))
    return harness.controller.incremental_alter_configs(request)


def replaced(harness: Harness, *names: str) -> Any:
    rows = resources(*names, configs=[{"name": "retention.ms", "value": "5"}])
    return harness.controller.alter_configs(decoded(ApiKey.ALTER_CONFIGS, resources=rows))


def created(harness: Harness, *names: str) -> Any:
    rows = [
        {"name": f"new-{name}", "num_partitions": 1, "replication_factor": 2, "assignments": [], "configs": []}
        for name in names
    ]
    return harness.controller.create_topics(decoded(ApiKey.CREATE_TOPICS, topics=rows))


def deleted(harness: Harness, *names: str) -> Any:
    rows = [{"name": name, "topic_id": None} for name in names]
    return harness.controller.delete_topics(decoded(ApiKey.DELETE_TOPICS, topics=rows))


def grown(harness: Harness, *names: str) -> Any:
    rows = [{"name": name, "count": 2, "assignments": None} for name in names]
    return harness.controller.create_partitions(decoded(ApiKey.CREATE_PARTITIONS, topics=rows))


def elected(harness: Harness, *names: str) -> Any:
    rows = [{"topic": name, "partitions": [0]} for name in names]
    return harness.controller.elect_leaders(decoded(ApiKey.ELECT_LEADERS, election_type=0, topic_partitions=rows))


def reassigned(harness: Harness, *names: str) -> Any:
    rows = [{"name": name, "partitions": [{"partition_index": 0, "replicas": [1, 3]}]} for name in names]
    request = decoded(ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=rows)
    return harness.controller.alter_partition_reassignments(request)


def shrunk(harness: Harness, *names: str) -> Any:
    return harness.controller.alter_partition(isr_request(harness, list(names), 1, (1,)))


def assigned(harness: Harness, *names: str) -> Any:
    ids = [harness.image.topics_by_name[name].topic_id for name in names]
    topics = [{"topic_id": one, "partitions": [{"partition_index": 0}]} for one in ids]
    epoch, rows = harness.image.brokers[1].epoch, [{"id": OTHER_DIRECTORY, "topics": topics}]
    request = decoded(ApiKey.ASSIGN_REPLICAS_TO_DIRS, broker_id=1, broker_epoch=epoch, directories=rows)
    return harness.controller.assign_replicas_to_dirs(request)


Ask = Callable[..., Any]
BY_CLIENTS: list[Ask] = [configured, replaced, created, deleted, grown, elected, reassigned]
BY_BROKERS: list[Ask] = [shrunk, assigned]


def codes(answer: Any) -> list[int]:
    """All error codes of the response below its top, in their order; else the one at the top."""
    found: list[int] = []

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            found.extend([value["error_code"]] if "error_code" in value else [])
            for inner in value.values():
                visit(inner)
        elif isinstance(value, (list, tuple)):
            for inner in value:
                visit(inner)

    rows = {key: list(value) for key, value in answer.items() if not isinstance(value, (int, str, type(None)))}
    visit(rows)
    return found or [answer["error_code"]]


def new_records(harness: Harness, since: int) -> list[Record]:
    return [record for offset, record in harness.quorum.records() if offset >= since]


async def iterations(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def until_some_are_decided(harness: Harness, since: int) -> None:
    for _ in range(200):
        if new_records(harness, since):
            return
        await asyncio.sleep(0)
    raise AssertionError("nothing was decided")


@pytest.mark.parametrize("ask", BY_CLIENTS + BY_BROKERS)
def test_all_items_are_decided(ask: Ask) -> None:
    async def main() -> None:
        harness = await cluster(leader=2 if ask is elected else 1)
        since, batches = harness.quorum.log_end_offset(), len(harness.quorum.batches)
        assert codes(await ask(harness, *NAMES)) == [0] * COUNT
        assert len(harness.quorum.batches) - batches >= COUNT // PER_STEP
        assert len(new_records(harness, since)) >= COUNT

    run(main())


@pytest.mark.parametrize("ask", BY_CLIENTS + BY_BROKERS)
def test_a_controller_that_loses_leadership_leaves_the_rest(ask: Ask) -> None:
    """Parts may survive; the client is told to ask the next controller for all of it again, and that is answered."""

    async def main() -> None:
        harness = await cluster(leader=2 if ask is elected else 1)
        since = harness.quorum.log_end_offset()
        harness.quorum.auto_commit = False
        asked = ask(harness, *NAMES)
        await until_some_are_decided(harness, since)
        harness.quorum.elect(2, 2)
        await iterations(30)
        assert set(codes(await asked)) == {ErrorCode.NOT_CONTROLLER}
        written = len(new_records(harness, since))
        assert 0 < written < COUNT
        harness.quorum.auto_commit = True
        harness.quorum.elect(1, 3)
        again = codes(await ask(harness, *NAMES))
        assert len(again) == COUNT and 0 in again
        done_before = {
            created: ErrorCode.TOPIC_ALREADY_EXISTS,
            deleted: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            grown: ErrorCode.INVALID_PARTITIONS,
            elected: ErrorCode.ELECTION_NOT_NEEDED,
        }
        assert set(again) <= {0, done_before.get(ask, 0)}

    run(main())


@pytest.mark.parametrize("ask", BY_CLIENTS)
def test_between_two_parts_of_a_client_there_is_time_for_other_work(ask: Ask) -> None:
    async def main() -> None:
        harness = await cluster(leader=2 if ask is elected else 1)
        loop, batches = asyncio.get_running_loop(), len(harness.quorum.batches)
        begin = loop.time()
        await ask(harness, *NAMES)
        pauses = len(harness.quorum.batches) - batches - 1
        assert pauses > 2
        assert (loop.time() - begin) / PART_PAUSE_S in (pytest.approx(pauses), pytest.approx(pauses + 1))

    run(main())


@pytest.mark.parametrize("ask", [configured, replaced, created, deleted, grown])
def test_what_is_named_twice_is_not_done_in_any_part(ask: Ask) -> None:
    async def main() -> None:
        harness = await cluster()
        since = harness.quorum.log_end_offset()
        answer = await ask(harness, *NAMES, NAMES[0], NAMES[-1])
        assert set(codes(answer)) == {0, ErrorCode.INVALID_REQUEST}
        assert codes(answer).count(0) == COUNT - 2
        records = new_records(harness, since)
        kept = [harness.image.topics_by_name[name].topic_id for name in (NAMES[0], NAMES[-1])]
        assert not [one for one in records if getattr(one, "topic_id", None) in kept]
        assert not [one for one in records if isinstance(one, ConfigRecord) and one.resource_name in ("t0", NAMES[-1])]
        assert not {"new-t0", f"new-{NAMES[-1]}"} & set(harness.image.topics_by_name)

    run(main())


@pytest.mark.parametrize("ask", [reassigned, shrunk, assigned])
def test_of_two_requests_for_one_partition_the_first_counts(ask: Ask) -> None:
    async def main() -> None:
        harness = await cluster()
        found = codes(await ask(harness, *NAMES, NAMES[0], NAMES[-1]))
        assert found == [0] * COUNT + [ErrorCode.INVALID_REQUEST] * 2

    run(main())


@scenario
async def test_a_topic_by_name_and_id_is_not_deleted() -> None:
    harness = await cluster()
    first, last = (harness.image.topics_by_name[name].topic_id for name in (NAMES[0], NAMES[-1]))
    rows = [{"name": None, "topic_id": first}, *({"name": name, "topic_id": None} for name in NAMES)]
    rows += [{"name": None, "topic_id": last}] * 2
    answer = await harness.controller.delete_topics(decoded(ApiKey.DELETE_TOPICS, topics=rows))
    refused = [(row["name"], row["topic_id"]) for row in answer["responses"] if row["error_code"]]
    assert refused == [(NAMES[0], None), (NAMES[-1], None), (None, last)]
    assert set(harness.image.topics_by_name) == {NAMES[0], NAMES[-1]}


@pytest.mark.parametrize("ask", [configured, replaced, grown, elected, reassigned])
def test_topics_that_are_deleted_meanwhile_are_unknown(ask: Ask) -> None:
    async def main() -> None:
        harness = await cluster(leader=2 if ask is elected else 1)
        since = harness.quorum.log_end_offset()
        asked = ask(harness, *NAMES)
        await until_some_are_decided(harness, since)
        assert codes(await deleted(harness, NAMES[-2], NAMES[-1])) == [0, 0]
        assert codes(await asked) == [0] * (COUNT - 2) + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2

    run(main())


@scenario
async def test_a_topic_that_is_created_meanwhile_takes_its_name_in_metrics() -> None:
    harness = await cluster()
    asked = created(harness, *NAMES, "a.b")
    await until_some_are_decided(harness, harness.quorum.log_end_offset())
    assert codes(await created(harness, "a_b")) == [0]
    assert codes(await asked) == [0] * COUNT + [ErrorCode.INVALID_TOPIC_EXCEPTION]


@scenario
async def test_a_broker_that_is_fenced_meanwhile_is_in_no_new_isr() -> None:
    harness = await cluster()
    since = harness.quorum.log_end_offset()
    asked = grown(harness, *NAMES)
    await until_some_are_decided(harness, since)
    await harness.controller.broker_heartbeat(harness.heartbeat(3, want_fence=True))
    assert codes(await asked) == [0] * COUNT
    assert all(3 not in harness.partition(name, 1).isr for name in NAMES)


@pytest.mark.parametrize("ask", BY_BROKERS)
def test_a_broker_that_registers_anew_meanwhile_is_refused(ask: Ask) -> None:
    async def main() -> None:
        harness = await cluster()
        since = harness.quorum.log_end_offset()
        asked = ask(harness, *NAMES)
        await until_some_are_decided(harness, since)
        await harness.controller.broker_heartbeat(harness.heartbeat(1, want_fence=True, want_shut_down=True))
        registration = harness.registration(1, 2, log_dirs=[DIRECTORY, OTHER_DIRECTORY])
        assert (await harness.controller.register_broker(registration))["error_code"] == 0
        answer = await asked
        assert answer["error_code"] == ErrorCode.STALE_BROKER_EPOCH

    run(main())


@scenario
async def test_rules_that_change_meanwhile_hold_for_the_rest() -> None:
    """Unclean elections are allowed while reassignments are cancelled that need them."""
    harness = await cluster()
    await reassigned(harness, *NAMES)
    # All added replicas are gone from the ISR: without unclean elections a cancellation is possible for nobody.
    for name in NAMES:
        harness.image.topics_by_name[name].partitions[0] = harness.partition(name)._replace(isr=(3,), leader=3)
    rows = [{"name": name, "partitions": [{"partition_index": 0, "replicas": None}]} for name in NAMES]
    request = decoded(ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=rows)
    asked = harness.controller.alter_partition_reassignments(request)
    await iterations(3)
    allowed = {"name": "unclean.leader.election.enable", "config_operation": 0, "value": "true"}
    change = decoded(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=resources(NAMES[-1], configs=[allowed]))
    await harness.controller.incremental_alter_configs(change)
    assert codes(await asked) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT] * (COUNT - 1) + [0]


def min_isr(harness: Harness, value: str) -> Any:
    row = {"name": "min.insync.replicas", "config_operation": 0, "value": value}
    rows = [{"resource_type": 4, "resource_name": "", "configs": [row]}]
    return harness.controller.incremental_alter_configs(decoded(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=rows))


async def with_elrs() -> Harness:
    harness = await cluster()
    assert codes(await min_isr(harness, "2")) == [0]
    assert codes(await shrunk(harness, *NAMES)) == [0] * COUNT
    assert {harness.partition(name).elr for name in NAMES} == {(2,)}
    return harness


@scenario
async def test_min_insync_replicas_is_altered_when_no_elr_is_left() -> None:
    harness = await with_elrs()
    since = harness.quorum.log_end_offset()
    assert codes(await min_isr(harness, "1")) == [0]
    records = new_records(harness, since)
    assert len([one for one in records if isinstance(one, PartitionChangeRecord)]) == COUNT
    (altered,) = (at for at, one in enumerate(records) if isinstance(one, ConfigRecord))
    assert altered > COUNT - PER_STEP
    assert {harness.partition(name).elr for name in NAMES} == {()}


@scenario
async def test_a_controller_that_finds_no_min_insync_replicas_records_it_when_no_elr_is_left() -> None:
    harness = await with_elrs()
    harness.quorum.append([encode_record(ConfigRecord(4, "", "min.insync.replicas", None), 0)], 1)
    harness.quorum.commit()
    harness.quorum.elect(None, 2)
    since = harness.quorum.log_end_offset()
    harness.quorum.elect(1, 3)
    await iterations(2 * COUNT)
    records = new_records(harness, since)
    assert len([one for one in records if isinstance(one, PartitionChangeRecord)]) == COUNT
    assert records[-1] == ConfigRecord(4, "", "min.insync.replicas", "1")
    assert {harness.partition(name).elr for name in NAMES} == {()}


@scenario
async def test_a_resource_that_is_altered_meanwhile_is_altered_from_its_new_state() -> None:
    harness = await with_elrs()
    since = harness.quorum.log_end_offset()
    asked = min_isr(harness, "1")
    await until_some_are_decided(harness, since)
    row = {"name": "log.retention.ms", "value": "7"}
    rows = [{"resource_type": 4, "resource_name": "", "configs": [row, {"name": "min.insync.replicas", "value": "2"}]}]
    between = harness.controller.alter_configs(decoded(ApiKey.ALTER_CONFIGS, resources=rows))
    assert codes(await between) == [0] and codes(await asked) == [0]
    assert harness.image.configs[4, ""] == {"log.retention.ms": "7", "min.insync.replicas": "1"}


def feature(harness: Harness, *updates: tuple[str, int, int]) -> Any:
    rows = [{"feature": name, "max_version_level": level, "upgrade_type": kind} for name, level, kind in updates]
    return harness.controller.update_features(decoded(ApiKey.UPDATE_FEATURES, feature_updates=rows))


ELR_OFF = ("eligible.leader.replicas.version", 0, 2)


@scenario
async def test_features_change_together_when_no_elr_is_left() -> None:
    harness = await with_elrs()
    since = harness.quorum.log_end_offset()
    answer = await feature(harness, ELR_OFF, ("metadata.version", 25, 2))
    assert answer["error_code"] == 0
    batches = [batch for batch in harness.quorum.batches if batch.base_offset >= since and batch.records]
    assert len(batches) > COUNT // PER_STEP
    levels = [
        offset for offset, one in harness.quorum.records() if offset >= since and isinstance(one, FeatureLevelRecord)
    ]
    assert len(levels) == 2 and levels[0] >= batches[-1].base_offset


@scenario
async def test_one_refused_feature_among_very_many_refuses_all() -> None:
    harness = await cluster()
    since = harness.quorum.log_end_offset()
    unknown = [(f"f{number}", 1, 1) for number in range(COUNT)]
    answer = await feature(harness, ELR_OFF, *unknown)
    assert answer["error_code"] == ErrorCode.INVALID_UPDATE_VERSION and len(answer["results"]) == COUNT + 1
    assert not new_records(harness, since)


@scenario
async def test_clients_take_turns_and_brokers_do_not_wait() -> None:
    harness = await cluster()
    since = harness.quorum.log_end_offset()
    long = [configured(harness, *NAMES), grown(harness, *NAMES)]
    short = deleted(harness, NAMES[-1])
    heartbeat = harness.controller.broker_heartbeat(harness.heartbeat(2))
    assert heartbeat.done(), "nothing is to be written for it"
    await short
    assert not any(one.done() for one in long)
    assert len(new_records(harness, since)) < 2 * COUNT
    for answer in [await one for one in long]:
        assert codes(answer) == [0] * (COUNT - 1) + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@scenario
async def test_a_request_that_nobody_waits_for_any_more_is_decided() -> None:
    """A connection may be closed, or the node stop, before the last part."""
    harness = await cluster()
    asked = configured(harness, *NAMES)
    asked.cancel()
    await asyncio.sleep(1)
    assert len([one for one in harness.image.configs if one[0] == 2]) == COUNT
    asked = replaced(harness, *NAMES)
    asked.cancel()
    harness.controller.close()
    await iterations(10)


@scenario
async def test_elections_that_a_former_controller_left_undone_are_made() -> None:
    """It unfenced a broker, and lost its leadership before it came to the last of the broker's partitions."""
    harness = await cluster()
    for name in NAMES:
        await harness.controller.alter_partition(isr_request(harness, [name], 1, (1,)))
    await harness.controller.broker_heartbeat(harness.heartbeat(1, want_fence=True))
    since = harness.quorum.log_end_offset()
    returns = harness.controller.broker_heartbeat(harness.heartbeat(1))
    await until_some_are_decided(harness, since)
    await iterations(2)
    harness.quorum.elect(2, 2)
    assert (await returns)["error_code"] == ErrorCode.NOT_CONTROLLER
    leaders = [harness.partition(name).leader for name in NAMES]
    assert 1 in leaders and -1 in leaders
    harness.quorum.elect(1, 3)
    await iterations(60)
    assert {harness.partition(name).leader for name in NAMES} == {1}
