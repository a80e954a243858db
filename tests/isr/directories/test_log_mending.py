"""Damaged logs are mended from other replicas, and the log's end stays."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from support.isr.manager_cluster import Cluster, registration, replicated_topic
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


def test_a_node_that_has_stopped_mends_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    """It waited until its replica was out of the ISR, which would be over after ten seconds."""
    cluster, _ = filled(default_min_isr=2)
    found = damage(cluster, 2)
    manager = cluster.managers[2]
    mend(cluster, 2, found, within_s=0.5)
    cluster.stop(2)
    cluster.on_loop(manager.on_damaged, TP, found)
    caplog.clear()
    cluster.sleep(15.0)
    assert asked_for_segments(cluster, 2) == []
    assert not [line for line in caplog.messages if "mended" in line or "stays damaged" in line]


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


def test_a_replica_out_of_the_isr_is_in_a_directory_that_does_not_exist_until_it_is_mended() -> None:
    """That is how the controller is told to elect another one, and not this one (KIP-858)."""
    cluster, topic_id = filled(default_min_isr=2)
    found = damage(cluster, 2)
    cluster.assigned.clear()
    mend(cluster, 2, found, within_s=1.0)
    directories = cluster.logs[2].directories
    ((node, told),) = cluster.assigned
    assert node == 2 and list(told) == [(topic_id, 0)]
    assert told[topic_id, 0] not in directories.online_ids and told[topic_id, 0].version == 4
    cluster.change(topic_id, 0, isr=(1, 3))
    cluster.tell()
    cluster.sleep(1.0)
    assert is_sound(cluster, 2)
    assert cluster.assigned[-1] == (2, {(topic_id, 0): directories.id_of(TP)})


def test_a_replica_that_the_controller_does_not_take_out_of_the_isr_is_mended_after_ten_seconds() -> None:
    """The controller may be away for long. The log must not stay damaged for that."""
    cluster, _ = filled(default_min_isr=2)
    mend(cluster, 2, damage(cluster, 2), within_s=9.5)
    assert not is_sound(cluster, 2)
    cluster.sleep(1.0)
    assert is_sound(cluster, 2)


def test_a_leader_that_can_be_spared_leads_no_more_when_it_is_mended() -> None:
    """Its consumers and followers would else meet the damage meanwhile."""
    cluster, topic_id = filled(default_min_isr=2)
    found = damage(cluster, 1)
    mend(cluster, 1, found, within_s=1.0)
    cluster.change(topic_id, 0, isr=(2, 3), leader=2)
    cluster.tell()
    cluster.sleep(1.0)
    assert is_sound(cluster, 1)


@pytest.mark.parametrize(("min_isr", "isr", "leader"), [(1, (2, 3), 2), (2, (1, 2, 3), 1)])
def test_a_replica_without_which_too_few_that_work_are_in_sync_stays_in_the_isr(
    min_isr: int, isr: tuple[int, ...], leader: int
) -> None:
    """Broker 3 is fenced. What is sound of the replica's data is still needed: it is mended at once."""
    cluster, topic_id = filled(default_min_isr=min_isr)
    cluster.records.append(registration(3, fenced=True))
    cluster.change(topic_id, 0, isr=isr, leader=leader)
    cluster.tell()
    cluster.sleep(1.0)
    cluster.assigned.clear()
    mend(cluster, 2, damage(cluster, 2), within_s=1.0)
    assert is_sound(cluster, 2)
    assert cluster.assigned == []


def test_the_leader_is_asked_first_and_a_broker_that_is_fenced_is_not_asked() -> None:
    cluster, topic_id = filled()
    cluster.change(topic_id, 0, leader=3)
    cluster.tell()
    cluster.sleep(1.0)
    found, *_ = [damage(cluster, node) for node in (2, 1, 3)]
    mend(cluster, 2, found)
    assert asked_for_segments(cluster, 2) == [3, 1]
    cluster.records.append(registration(3, fenced=True))
    cluster.tell()
    cluster.fetches.clear()
    mend(cluster, 2, found)
    assert asked_for_segments(cluster, 2) == [1]


def test_a_source_that_answers_with_an_error_is_passed_over_at_once_and_no_connection_stays() -> None:
    cluster, _ = filled()
    cluster.sleep(1.0)
    found = damage(cluster, 2)
    replica(cluster, 1).offline = True
    cluster.sleep(1.0)
    mend(cluster, 2, found, within_s=0.5)
    assert is_sound(cluster, 2)
    assert asked_for_segments(cluster, 2) == [1, 3]
    to_third = [link for link in cluster.links if (link.source, link.target) == (2, 3)]
    assert [link.is_closed for link in to_third] == [True]


def test_all_damaged_segments_of_a_log_are_mended_in_one_go() -> None:
    """The scrubber would come to the second one only hours later, and the replica leave the ISR a second time."""
    cluster, _ = filled()
    for node in (1, 2, 3):
        cluster.on_loop(replica(cluster, node).log.roll)
    for number in range(3):
        cluster.produce(1, TP, b"%d" % number)
        cluster.sleep(0.01)
    cluster.sleep(1.0)
    cluster.on_loop(cluster.logs[2].start, None, cluster.managers[2].on_damaged)
    log = replica(cluster, 2).log
    for segment in log.segments:
        cluster.disks[2].flip_bit(segment.file.path, 100, 3)
    mend(cluster, 2, damage_of(cluster, 2))
    assert is_sound(cluster, 2)
    assert read_all(log) == read_all(replica(cluster, 1).log)


def test_a_replica_that_is_offline_is_not_mended() -> None:
    cluster, _ = filled()
    found = damage(cluster, 2)
    replica(cluster, 2).offline = True
    mend(cluster, 2, found)
    assert asked_for_segments(cluster, 2) == []
