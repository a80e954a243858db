"""`raftwerk consume --group`: members share partitions, commit, leave, and survive their coordinator."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.e2e import helpers
from support.e2e.clusters import start_cluster
from support.e2e.command import fails_usage, ok, raftwerk, undo_nohup
from support.e2e.consumers import COUNT, PARTITIONS, confluent, coordinator_of, fill, read

from raftwerk.cluster.client.client_errors import RefusedError
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.group_client import GroupClient
from raftwerk.cluster.client.group_member import GroupMember
from raftwerk.cluster.local.supervisor import Supervisor
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

OFTEN = {f"group.consumer.{key}": "200" for key in ("heartbeat.interval.ms", "min.heartbeat.interval.ms")} | {
    f"group.consumer.{key}": "2000" for key in ("session.timeout.ms", "min.session.timeout.ms")
}
"""Settings with which members hear of a new assignment soon, and a dead member is missed soon."""


class Member:
    """A running `raftwerk consume --group`, and the numbers that it has printed."""

    def __init__(self, directory: Path, bootstrap: str, topic: str, group: str) -> None:
        command = [sys.executable, "-m", "raftwerk", "consume", topic, "--group", group, "-b", bootstrap]
        self._file = directory / f"{time.monotonic_ns()}.out"
        with open(self._file, "wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, preexec_fn=undo_nohup)  # noqa: PLW1509

    def numbers(self) -> list[int]:
        return [int(line) for line in self._file.read_text().splitlines()]

    def end(self, sent: signal.Signals) -> int:
        self.process.send_signal(sent)
        return self.process.wait(20)


@pytest.fixture(scope="module")
def attentive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    with start_cluster(tmp_path_factory.mktemp("attentive"), overrides=OFTEN) as supervisor:
        yield supervisor


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Member]]:
    """Starts members, which are ended with the test."""
    with contextlib.ExitStack() as stack:

        def make(bootstrap: str, topic: str, group: str) -> Member:
            member = Member(tmp_path, bootstrap, topic, group)
            stack.enter_context(member.process)
            stack.callback(member.process.kill)
            return member

        yield make


def until(holds: Callable[[], bool], timeout_s: float = 40.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def members(bootstrap: str, group: str) -> int:
    return raftwerk("groups", "describe", group, "-b", bootstrap).stdout.count("raftwerk-cli")


def test_to_the_end_and_from_where_the_group_is(attentive: Supervisor, topic: str) -> None:
    bootstrap = attentive.plan.bootstrap
    fill(bootstrap, topic)
    command = ("consume", topic, "--group", topic, "-b", bootstrap)
    first = ok(*command, "-n", "100").splitlines()
    rest = ok(*command, "-e").splitlines()
    assert len(first) == 100
    assert sorted(map(int, first + rest)) == list(range(COUNT))
    assert ok(*command, "-e") == ""
    assert members(bootstrap, topic) == 0
    assert "lag 0" in ok("groups", "lag", topic, "-b", bootstrap)


def test_a_member_without_a_partition_ends_when_the_group_has_read_all(
    attentive: Supervisor, topic: str, start: Callable[..., Member]
) -> None:
    """It waited for a partition for ever."""
    bootstrap = attentive.plan.bootstrap
    helpers.create_topic(bootstrap, topic, 1)
    ok("produce", topic, "-m", "1", "-m", "2", "-b", bootstrap)
    first = start(bootstrap, topic, topic)
    until(lambda: first.numbers() == [1, 2])
    assert ok("consume", topic, "--group", topic, "-e", "-b", bootstrap) == ""


def test_a_new_group_with_latest_reads_only_what_comes(attentive: Supervisor, topic: str) -> None:
    bootstrap = attentive.plan.bootstrap
    fill(bootstrap, topic)
    command = ("consume", topic, "--group", topic, "-e", "-b", bootstrap)
    assert ok(*command, "--latest") == ""
    fill(bootstrap, topic, COUNT, create=False)
    assert sorted(map(int, ok(*command).splitlines())) == list(range(COUNT, 2 * COUNT))
    told = raftwerk(*command, "--latest").stderr
    assert f"{topic} has committed offsets of {topic} and goes on there, in spite of --latest" in told


@pytest.mark.long
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_two_members_share_and_one_that_leaves_hands_over(
    sent: signal.Signals, attentive: Supervisor, topic: str, start: Callable[..., Member]
) -> None:
    bootstrap = attentive.plan.bootstrap
    helpers.create_topic(bootstrap, topic, PARTITIONS)
    one, two = (start(bootstrap, topic, topic) for _ in range(2))
    until(lambda: members(bootstrap, topic) == 2)
    fed = 0

    def both_have_some() -> bool:
        nonlocal fed
        fill(bootstrap, topic, fed, create=False)
        fed += COUNT
        return bool(one.numbers()) and len(two.numbers()) > 0 and fed > COUNT

    until(both_have_some)
    until(lambda: len({*one.numbers(), *two.numbers()}) == fed)
    assert one.end(sent) == 128 + sent
    assert members(bootstrap, topic) == 1
    fill(bootstrap, topic, fed, create=False)
    until(lambda: len({*one.numbers(), *two.numbers()}) == fed + COUNT)
    together = one.numbers() + two.numbers()
    assert sorted(together) == list(range(fed + COUNT))  # none twice: what was printed was committed


def test_a_member_beside_one_of_librdkafka(attentive: Supervisor, topic: str, start: Callable[..., Member]) -> None:
    bootstrap = attentive.plan.bootstrap
    fill(bootstrap, topic)
    other = confluent(bootstrap, topic, **{"group.protocol": "consumer"})
    other.subscribe([topic])
    seen = read([other], COUNT)
    assert seen == list(range(COUNT))
    mine = start(bootstrap, topic, topic)

    def is_shared() -> bool:
        other.poll(0.05)
        return 0 < len(other.assignment()) < PARTITIONS

    until(is_shared)
    fill(bootstrap, topic, COUNT, create=False)
    numbers = set(read([other], COUNT // 2, 5.0))
    other.close()
    until(lambda: len(numbers | set(mine.numbers())) >= COUNT)


@pytest.mark.long
def test_a_member_survives_its_coordinator(
    new_cluster: Callable[..., Supervisor], topic: str, start: Callable[..., Member]
) -> None:
    cluster = new_cluster(overrides=OFTEN)
    bootstrap = cluster.plan.bootstrap
    fill(bootstrap, topic)
    member = start(bootstrap, topic, topic)
    until(lambda: len(set(member.numbers())) == COUNT)
    cluster.kill(coordinator_of(bootstrap, topic))
    fill(bootstrap, topic, COUNT, create=False)
    until(lambda: len(set(member.numbers())) == 2 * COUNT)
    assert member.end(signal.SIGTERM) == 143


def test_partitions_that_are_added_are_read(attentive: Supervisor, topic: str, start: Callable[..., Member]) -> None:
    bootstrap = attentive.plan.bootstrap
    fill(bootstrap, topic)
    member = start(bootstrap, topic, topic)
    until(lambda: len(member.numbers()) == COUNT)
    ok("topics", "alter", topic, "-p", str(PARTITIONS + 1), "-b", bootstrap)
    ok("produce", topic, "-p", str(PARTITIONS), "-m", "12345", "-b", bootstrap)
    until(lambda: 12345 in member.numbers())


def test_records_that_were_deleted_are_skipped(attentive: Supervisor, topic: str) -> None:
    bootstrap = attentive.plan.bootstrap
    fill(bootstrap, topic)
    command = ("consume", topic, "--group", topic, "-b", bootstrap)
    ok(*command, "-n", "1")
    ok("topics", "delete-records", topic, "--all", "-b", bootstrap)
    fill(bootstrap, topic, COUNT, create=False)
    assert sorted(map(int, ok(*command, "-e").splitlines())) == list(range(COUNT, 2 * COUNT))


def test_a_member_leaves_when_its_topic_is_deleted(
    attentive: Supervisor, topic: str, start: Callable[..., Member]
) -> None:
    bootstrap = attentive.plan.bootstrap
    helpers.create_topic(bootstrap, topic)
    member = start(bootstrap, topic, topic)
    until(lambda: members(bootstrap, topic) == 1)
    ok("topics", "delete", topic, "-b", bootstrap)
    assert member.process.wait(30) == 1
    assert members(bootstrap, topic) == 0, "it has left, and is not missed only after its session"


def test_a_member_that_cannot_begin_leaves(attentive: Supervisor, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has joined by then, and the others would wait for it until its session ends."""
    bootstrap = attentive.plan.bootstrap
    helpers.create_topic(bootstrap, topic)

    async def refuse(*_: object) -> dict[TopicPartition, int]:
        assert await asyncio.to_thread(members, bootstrap, topic) == 1
        raise RefusedError(ErrorCode.GROUP_AUTHORIZATION_FAILED, f"group {topic}")

    async def run() -> None:
        async with ClusterClient(bootstrap) as client, GroupMember(client, topic, topic, member_id="one"):
            raise AssertionError("it has joined")

    monkeypatch.setattr(GroupClient, "committed", refuse)
    with pytest.raises(RefusedError):
        asyncio.run(run())
    assert members(bootstrap, topic) == 0


def test_options_that_a_group_cannot_have(bootstrap: str) -> None:
    for option in (("-p", "1"), ("--offset", "3"), ("--last", "1"), ("--since", "1m")):
        assert "groups reset" in fails_usage("consume", "t", "--group", "g", *option, "-b", bootstrap)
