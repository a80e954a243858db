"""Damaged logs are mended from other replicas, and the log's end stays."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from support.isr.manager_cluster import Cluster, replicated_topic
from support.log.logs import read_all

from raftwerk.isr.replica import Replica
from raftwerk.log.manager.log_scrubber import find_damage
from raftwerk.log.segment.batch_scan import Damage
from raftwerk.runtime.incremental_work import run_at_once
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)
RECORDS = 10


def filled(**config: Any) -> tuple[Cluster, UUID]:
    """Three replicas of which none may leave the ISR, with some records in the first segment."""
    cluster, topic_id = replicated_topic(**{"default_min_isr": 3, **config})
    for number in range(RECORDS):
        cluster.produce(1, TP, b"%d" % number)
        cluster.sleep(0.01)
    cluster.sleep(1.0)
    return cluster, topic_id


def replica(cluster: Cluster, node: int) -> Replica:
    return cluster.managers[node].partitions[TP]


def damage(cluster: Cluster, node: int, position: int = 100) -> Damage:
    log = replica(cluster, node).log
    cluster.disks[node].flip_bit(log.segments[0].file.path, position, 3)
    found = run_at_once(find_damage(log))
    assert found is not None
    return found


def mend(cluster: Cluster, node: int, found: Damage, within_s: float = 5.0) -> None:
    cluster.on_loop(cluster.managers[node].on_damaged, TP, found)
    cluster.sleep(within_s)


def is_sound(cluster: Cluster, node: int) -> bool:
    return run_at_once(find_damage(replica(cluster, node).log)) is None


def test_a_follower_is_mended_from_its_leader() -> None:
    cluster, _ = filled()
    mend(cluster, 2, damage(cluster, 2))
    assert is_sound(cluster, 2)
    assert read_all(replica(cluster, 2).log) == read_all(replica(cluster, 1).log)
    cluster.produce(1, TP, b"after")
    cluster.sleep(1.0)
    assert [replica(cluster, node).high_watermark for node in (1, 2, 3)] == [RECORDS + 1] * 3


def test_a_leader_is_mended_from_a_follower() -> None:
    cluster, _ = filled()
    mend(cluster, 1, damage(cluster, 1))
    assert is_sound(cluster, 1)
    assert read_all(replica(cluster, 1).log) == read_all(replica(cluster, 3).log)


def test_a_damaged_source_is_passed_over() -> None:
    cluster, _ = filled()
    damage(cluster, 1, 200)
    mend(cluster, 2, damage(cluster, 2, 100))
    assert is_sound(cluster, 2) and not is_sound(cluster, 1)
    mend(cluster, 1, damage_of(cluster, 1))
    assert is_sound(cluster, 1)


def damage_of(cluster: Cluster, node: int) -> Damage:
    found = run_at_once(find_damage(replica(cluster, node).log))
    assert found is not None
    return found


def test_two_replicas_damaged_at_the_same_place_are_mended_from_the_third() -> None:
    cluster, _ = filled()
    found = {node: damage(cluster, node) for node in (1, 2)}
    for node, one in found.items():
        mend(cluster, node, one)
    assert is_sound(cluster, 1) and is_sound(cluster, 2)


def test_without_a_sound_replica_the_log_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    cluster, _ = filled()
    found = [damage(cluster, node) for node in (1, 2, 3)]
    before = read_all(replica(cluster, 2).log)
    mend(cluster, 2, found[1], within_s=30.0)
    assert read_all(replica(cluster, 2).log)[:100] == before[:100]
    assert replica(cluster, 2).log_end_offset == RECORDS
    names = cluster.disks[2].listdir(replica(cluster, 2).log.directory)
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    command = f"raftwerk log repair {replica(cluster, 2).log.directory} --execute"
    assert any("t-0 stays damaged" in one and one.endswith(command) for one in caplog.messages)


def test_a_source_that_does_not_answer_is_given_up_after_half_a_minute() -> None:
    cluster, _ = filled()
    found = damage(cluster, 2)
    cluster.mute[2, 1] = None
    mend(cluster, 2, found, within_s=29.5)
    assert not is_sound(cluster, 2)
    cluster.sleep(1.0)
    assert is_sound(cluster, 2), "broker 3 has it, too"


def test_a_replica_that_can_be_spared_is_out_of_the_isr_first() -> None:
    cluster, topic_id = filled(default_min_isr=2)
    found = damage(cluster, 2)
    mend(cluster, 2, found, within_s=1.0)
    assert not is_sound(cluster, 2), "it waits until it has left the ISR"
    cluster.change(topic_id, 0, isr=(1, 3))
    cluster.tell()
    cluster.sleep(1.0)
    assert is_sound(cluster, 2)


def test_mending_ends_with_the_node() -> None:
    cluster, _ = filled(default_min_isr=2)
    mend(cluster, 2, damage(cluster, 2), within_s=0.5)
    cluster.stop(2)
    cluster.boot(2)
    assert replica(cluster, 2).log_end_offset == RECORDS


def ask(cluster: Cluster, found: Damage) -> bool:
    """What the leader answers to a reader that has found damage."""
    answers: list[bool] = []
    cluster.on_loop(lambda: answers.append(cluster.managers[1].mend(TP, found)))
    return answers[0]


def test_a_reader_that_finds_damage_waits_while_it_is_being_mended() -> None:
    cluster, _ = filled()
    cluster.on_loop(cluster.logs[1].start, None, cluster.managers[1].on_damaged)
    found = damage(cluster, 1)
    assert ask(cluster, found) and ask(cluster, found)
    cluster.sleep(5.0)
    assert is_sound(cluster, 1)


def test_a_reader_does_not_wait_for_what_nobody_can_mend() -> None:
    cluster, _ = filled()
    cluster.on_loop(cluster.logs[1].start, None, cluster.managers[1].on_damaged)
    found, *_ = [damage(cluster, node) for node in (1, 2, 3)]
    assert ask(cluster, found)
    cluster.sleep(30.0)
    assert not ask(cluster, found)
    assert ask(cluster, found._replace(offset=found.offset + 1)), "other damage may be mended"


def asked_for_segments(cluster: Cluster, source: int) -> list[int]:
    """The brokers from which this one has fetched as a consumer does, which only the mending of a log does here."""
    return [target for at, target, request in cluster.fetches if at == source and request.replica_id < 0]


def test_two_damaged_logs_are_mended_one_after_the_other() -> None:
    """A disk that has damaged many logs would else have them all fetched and written at once, beside all other work."""
    cluster, _ = replicated_topic(partitions=2, default_min_isr=3)
    other = TopicPartition("t", 1)
    for tp in (TP, other):
        cluster.produce(1, tp, b"x" * 100)
    cluster.sleep(1.0)
    logs = [cluster.managers[2].partitions[tp].log for tp in (TP, other)]
    for log in logs:
        cluster.disks[2].flip_bit(log.segments[0].file.path, 70, 3)
    found = [run_at_once(find_damage(log)) for log in logs]
    cluster.mute[2, 1] = None
    for tp, one in zip((TP, other), found, strict=True):
        assert one is not None
        cluster.on_loop(cluster.managers[2].on_damaged, tp, one)
    cluster.sleep(5.0)
    assert asked_for_segments(cluster, 2) == [1], "the second one waits for the first one"
    cluster.sleep(60.0)
    assert [run_at_once(find_damage(log)) for log in logs] == [None, None]


def test_a_node_that_has_stopped_mends_nothing_more() -> None:
    """It waited until its replica was out of the ISR, which would be over after ten seconds."""
    cluster, _ = filled(default_min_isr=2)
    found = damage(cluster, 2)
    manager = cluster.managers[2]
    mend(cluster, 2, found, within_s=0.5)
    cluster.stop(2)
    cluster.on_loop(manager.on_damaged, TP, found)
    cluster.sleep(15.0)
    assert asked_for_segments(cluster, 2) == []


def test_damage_that_nobody_could_mend_is_mended_when_it_is_found_again_and_a_replica_is_sound() -> None:
    """Then a reader that finds the same damage again waits for it, as for any other."""
    cluster, _ = filled()
    cluster.on_loop(cluster.logs[1].start, None, cluster.managers[1].on_damaged)
    found, *_ = [damage(cluster, node) for node in (1, 2, 3)]
    mend(cluster, 1, found, within_s=30.0)
    assert not is_sound(cluster, 1) and not ask(cluster, found)
    cluster.disks[3].flip_bit(replica(cluster, 3).log.segments[0].file.path, 100, 3)
    assert is_sound(cluster, 3), "as if a copy had been restored"
    mend(cluster, 1, found)
    assert is_sound(cluster, 1)
    cluster.disks[1].flip_bit(f"{replica(cluster, 1).log.directory}/00000000000000000000.log", 100, 3)
    assert ask(cluster, damage_of(cluster, 1))


def test_a_source_that_has_not_committed_the_records_is_given_up_and_another_one_is_asked() -> None:
    """A new leader may not know yet what is committed. The log of a replica must not stay damaged for that."""
    cluster, _ = filled(replica_lag_time_max_ms=600_000)
    found = damage(cluster, 2)
    replica(cluster, 1).partition.watermark.reset(0)
    mend(cluster, 2, found, within_s=5.0)
    assert not is_sound(cluster, 2), "it may hear of it soon"
    cluster.sleep(10.0)
    assert replica(cluster, 1).high_watermark == 0
    assert is_sound(cluster, 2)
    assert asked_for_segments(cluster, 2)[-1] == 3
