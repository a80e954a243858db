"""How `raftwerk partitions` ends, and what it says of what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from raftwerk.cli.main import cli
from raftwerk.cluster.client import reassignment
from raftwerk.cluster.client.admin_client import AdminClient, BrokerState, LogDir
from raftwerk.cluster.client.client_errors import ClientError
from raftwerk.cluster.client.cluster_client import ClusterClient, Gathered
from raftwerk.cluster.client.reassignment import Move, OngoingMove, ProgressMeter
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode

UNAVAILABLE = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def elect(monkeypatch: pytest.MonkeyPatch, codes: Sequence[int], *arguments: str) -> Result:
    """Run the command where the partitions of t, from 0 on, get these codes."""

    async def request(_self: ClusterClient, _api: ApiKey, _version: int, _fields: Any, *_: object) -> Struct:
        rows = [
            Struct({"partition_id": index, "error_code": code, "error_message": None})
            for index, code in enumerate(codes)
        ]
        topics = [Struct({"topic": "t", "partition_result": rows})] if rows else []
        return Struct({"error_code": 0, "error_message": None, "replica_election_results": topics})

    monkeypatch.setattr(ClusterClient, "request", request)
    return CliRunner().invoke(cli, ["partitions", "elect", *arguments, "-b", "localhost:1"])


@pytest.mark.parametrize("arguments", [["--all"], ["--all", "--unclean"], ["t-0", "t-1"]])
def test_one_election_that_fails_is_the_error(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    result = elect(monkeypatch, [ErrorCode.NONE, UNAVAILABLE], *arguments)
    assert (result.exit_code, result.stdout) == (1, "t-0 elected\n")
    assert result.stderr.startswith("Error: t-1 not elected: ") and "(PREFERRED_LEADER_NOT_AVAILABLE)" in result.stderr


def test_every_election_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    result = elect(monkeypatch, [UNAVAILABLE, ErrorCode.NONE, UNAVAILABLE], "--all")
    assert (result.exit_code, result.stdout) == (1, "t-1 elected\n")
    told = result.stderr.splitlines()
    assert [line.partition(":")[0] for line in told] == ["t-0 not elected", "t-2 not elected", "Error"]
    assert told[-1] == "Error: 2 elections failed"


def test_an_election_that_is_not_needed_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    result = elect(monkeypatch, [ErrorCode.ELECTION_NOT_NEEDED], "t-0")
    assert (result.exit_code, result.output) == (0, "t-0 has its leader already\n")
    result = elect(monkeypatch, [], "--all")
    assert (result.exit_code, result.output) == (0, "Every leader is the preferred one.\n")


def refused(monkeypatch: pytest.MonkeyPatch, codes: Mapping[int, int], *arguments: str) -> str:
    """What the command says where the partitions of t get these codes."""

    async def request(_self: ClusterClient, _api: ApiKey, _version: int, _fields: Any, *_: object) -> Struct:
        rows = [
            Struct({"partition_index": index, "error_code": code, "error_message": None})
            for index, code in codes.items()
        ]
        topics = [Struct({"name": "t", "partitions": rows})]
        return Struct({"error_code": 0, "error_message": None, "responses": topics})

    async def done(*_: object) -> None:
        pass

    monkeypatch.setattr(reassignment, "alter_replica_log_dirs", done)
    monkeypatch.setattr(ClusterClient, "request", request)
    result = CliRunner().invoke(cli, ["partitions", *arguments, "-b", "localhost:1"])
    assert result.exit_code == 1
    return result.stderr


def test_moves_that_start_beside_a_refused_one_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    told = refused(monkeypatch, {0: 0, 9: unknown}, "reassign", "t-0=2", "t-9=1", "--wait")
    assert told.startswith("Error: t-9: ") and told.endswith("; started: t-0\n")
    told = refused(monkeypatch, {8: unknown, 9: unknown}, "reassign", "t-8=2", "t-9=1")
    assert told.startswith("Error: t-8: ") and told.endswith("; 1 other refused, too\n")
    none = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    told = refused(monkeypatch, {0: 0, 1: none, 2: 0}, "cancel", "t-0", "t-1", "t-2")
    assert told.startswith("Error: t-1: ") and told.endswith("; cancelled: t-0, t-2\n")


def test_one_partition_has_one_move() -> None:
    result = CliRunner().invoke(cli, ["partitions", "reassign", "t-0=1", "t-0=2", "-b", "localhost:1"])
    assert result.exit_code == 2 and "t-0 is named twice" in result.stderr


STAYS = "the throttle stays in place: raftwerk partitions unthrottle removes it"


def reassign(monkeypatch: pytest.MonkeyPatch, ends: Callable[[], None], *arguments: str) -> Result:
    """Move t-0 where the wait for it ends with what `ends` does, or goes on if it does nothing."""

    async def done(*_: object) -> None:
        pass

    async def wait_for_moves(*_: object) -> None:
        ends()
        await asyncio.get_running_loop().create_future()

    for name in ("throttle", "alter_replica_log_dirs", "reassign"):
        monkeypatch.setattr(reassignment, name, done)
    monkeypatch.setattr(reassignment, "wait_for_moves", wait_for_moves)
    return CliRunner().invoke(cli, ["partitions", "reassign", "t-0=2", "--wait", *arguments, "-b", "localhost:1"])


def late() -> None:
    raise ClientError("still moving after 5 s: t-0")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-8-sig"])
def test_a_plan_may_be_as_powershell_writes_it(tmp_path: Path, encoding: str) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2]}]}', encoding)
    command = ["partitions", "reassign", "--file", str(plan), "-b", "localhost:1"]
    assert "no broker answers" in CliRunner().invoke(cli, command).stderr
    plan.write_bytes(b"\xff\xfe\x00")
    told = CliRunner().invoke(cli, command)
    assert told.exit_code == 2 and "is not a reassignment plan" in told.stderr


def test_a_throttle_that_stays_after_the_time_limit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    result = reassign(monkeypatch, late, "--throttle", "1000")
    assert (result.exit_code, result.stderr) == (1, f"Error: still moving after 5 s: t-0; {STAYS}\n")
    result = reassign(monkeypatch, late)
    assert (result.exit_code, result.stderr) == (1, "Error: still moving after 5 s: t-0\n")


def test_a_throttle_that_stays_after_ctrl_c_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    going_on = "Interrupted; the moves go on, see: raftwerk partitions reassignments"
    result = reassign(monkeypatch, lambda: signal.raise_signal(signal.SIGINT), "--throttle", "1000")
    assert (result.exit_code, result.stderr) == (130, f"{going_on}; {STAYS}.\n")
    result = reassign(monkeypatch, lambda: signal.raise_signal(signal.SIGINT))
    assert (result.exit_code, result.stderr) == (130, f"{going_on}.\n")


def log_dir(path: str, *replicas: tuple[str, int, int, bool], broker: int = 1, failed: bool = False) -> LogDir:
    """A directory with these replicas: topic, partition, size, and whether it is being moved here."""
    names = ("topic", "partition", "size_bytes", "moving_here")
    rows = tuple(dict(zip(names, one, strict=True)) for one in replicas)
    return LogDir(broker, path, ErrorCode.KAFKA_STORAGE_ERROR if failed else 0, -1, -1, rows)


HALF_COPIED = [log_dir("/a", ("t", 0, 4096, False)), log_dir("/b", ("t", 0, 1024, True))]
SILENT = "broker 2 (b:9092) refuses the connection: the moves between its log directories are missing"


class Moving:
    """A cluster where these moves are under way, as its brokers tell it; those in `missing` tell nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log_dirs: Sequence[LogDir] = (), *missing: str) -> None:
        self.between_brokers: list[OngoingMove] = []
        self.log_dirs = log_dirs
        self.missing = missing

        async def reassignments(_: ClusterClient) -> list[OngoingMove]:
            return self.between_brokers

        async def describe_log_dirs(*_: object, **__: object) -> Gathered[LogDir]:
            return Gathered(list(self.log_dirs), list(self.missing))

        monkeypatch.setattr(reassignment, "reassignments", reassignments)
        monkeypatch.setattr(AdminClient, "describe_log_dirs", describe_log_dirs)

    def shown(self, *options: str) -> Result:
        return CliRunner().invoke(cli, ["partitions", "reassignments", *options, "-b", "localhost:1"])


def test_moves_between_directories_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    moving = Moving(monkeypatch, HALF_COPIED)
    told = moving.shown()
    assert (told.exit_code, told.stderr) == (0, "")
    assert told.stdout == "t-0  broker 1  from /a  to /b  3.0 KiB left\n"
    where = {"topic": "t", "partition": 0, "broker": 1, "from": "/a", "to": "/b"}
    assert json.loads(moving.shown("--json").stdout) == {**where, "copied_bytes": 1024, "left_bytes": 3072}


def test_moves_of_both_kinds_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    moving = Moving(monkeypatch, HALF_COPIED)
    moving.between_brokers = [OngoingMove("t", 1, (3, 1), (3,), (1,))]
    first, second = moving.shown().stdout.splitlines()
    assert first == "t-1  adding [3]  removing [1]" and second.startswith("t-0  broker 1  from /a")
    moving.log_dirs = ()
    assert moving.shown().output == "t-1  adding [3]  removing [1]\n"


def test_nothing_moves_only_if_all_brokers_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Moving(monkeypatch, [log_dir("/a", ("t", 0, 4096, False)), log_dir("/b")]).shown()
    assert (told.exit_code, told.output) == (0, "Nothing is moving.\n")
    told = Moving(monkeypatch, HALF_COPIED, SILENT).shown()
    assert told.exit_code == 1 and told.stdout.startswith("t-0  broker 1")
    assert told.stderr.startswith(f"Error: incomplete: {SILENT}; ")
    told = Moving(monkeypatch, [], SILENT).shown()
    assert told.exit_code == 1 and SILENT in told.stderr and "Nothing is moving" not in told.output


def test_a_copy_whose_replica_is_gone_does_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Moving(monkeypatch, [log_dir("/a", failed=True), log_dir("/b", ("t", 0, 1024, True))]).shown()
    assert (told.exit_code, told.output) == (0, "Nothing is moving.\n")


def test_progress_counts_what_is_copied_between_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of t-0, t-1 and t-2, the first is seen half copied, the second has moved before that, the third was there."""
    there = ("t", 2, 9000, False)
    moving = Moving(monkeypatch, [log_dir("/a", ("t", 0, 4096, False), ("t", 1, 2048, False)), log_dir("/b", there)])

    async def told(meter: ProgressMeter) -> str:
        return str(await meter.measure(ClusterClient("localhost:1")))

    wanted = [Move("t", partition, (1,), ("/b",)) for partition in range(3)]
    meter, late = ProgressMeter(wanted), ProgressMeter(wanted)
    asyncio.run(meter.look_ahead(ClusterClient("localhost:1")))
    moved = ("t", 1, 2048, False)
    moving.log_dirs = [log_dir("/a", ("t", 0, 4096, False)), log_dir("/b", ("t", 0, 1024, True), moved, there)]
    assert asyncio.run(told(meter)) == "2 of 3 partitions moved, 3.0 KiB of 6.0 KiB copied"
    moving.log_dirs = []
    assert asyncio.run(told(meter)) == "0 of 3 partitions moved, 3.0 KiB of 6.0 KiB copied", "nobody answers"
    moving.log_dirs = [log_dir("/b", ("t", 0, 4096, False), moved, there)]
    assert asyncio.run(told(meter)) == "3 of 3 partitions moved, 6.0 KiB of 6.0 KiB copied"
    assert asyncio.run(told(late)) == "3 of 3 partitions moved", "what was not seen is not told as 0 bytes"


def test_the_wait_goes_on_while_a_broker_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [log_dir("/b", ("t", 0, 4096, False))]
    moving = Moving(monkeypatch, [], SILENT)
    waits: list[int] = []

    async def start_again() -> None:
        waits.append(len(waits))
        moving.log_dirs, moving.missing = there, ()

    moves = [Move("t", 0, (1,), ("/b",))]
    asyncio.run(reassignment.wait_for_moves(ClusterClient("localhost:1"), moves, 300.0, start_again))
    assert waits == [0]
    silent = Moving(monkeypatch, [], SILENT)
    with pytest.raises(ClientError) as told:
        asyncio.run(reassignment.wait_for_moves(ClusterClient("localhost:1"), moves, -1.0))
    assert str(told.value).startswith(f"still moving after -1 s: t-0; {silent.missing[0]}; they go on, see: ")


def test_a_wait_names_once_the_brokers_that_fetch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    awaited = "they wait for broker 2, down or fenced: raftwerk doctor shows why"

    async def measure(*_: object) -> str:
        return "0 of 1 partition moved"

    async def held_up(*_: object) -> list[str]:
        return [awaited]

    async def wait(client: object, moves: object, timeout_s: float, look: Callable[[], Awaitable[None]]) -> None:
        for _ in range(4):
            await look()
        late()

    async def done(*_: object) -> None:
        pass

    monkeypatch.setattr(ProgressMeter, "look_ahead", done)
    monkeypatch.setattr(ProgressMeter, "measure", measure)
    for name, function in (("reassign", done), ("alter_replica_log_dirs", done), ("held_up", held_up)):
        monkeypatch.setattr(reassignment, name, function)
    monkeypatch.setattr(reassignment, "wait_for_moves", wait)
    result = CliRunner().invoke(cli, ["partitions", "reassign", "t-0=2", "--wait", "-b", "localhost:1"])
    assert result.stderr.splitlines()[:2] == ["0 of 1 partition moved", awaited]
    assert result.stderr.count(awaited) == 1


def test_a_wait_that_ends_names_the_brokers_that_fetch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    moving = Moving(monkeypatch, [])
    moving.between_brokers = [
        OngoingMove("t", 1, (2, 3, 4, 1), (2, 3, 4), (1,)),
        OngoingMove("u", 0, (5, 1), (5,), (1,)),
    ]

    async def registered_brokers(_: AdminClient) -> list[BrokerState]:
        return [BrokerState(one, "localhost", one, None, one == 3) for one in (1, 2, 3)]

    monkeypatch.setattr(AdminClient, "registered_brokers", registered_brokers)
    for move, told in ((2, ""), (3, "they wait for brokers 3, 4, down or fenced: raftwerk doctor shows why; ")):
        moving.between_brokers[0] = replace(moving.between_brokers[0], adding=(2,) if move == 2 else (2, 3, 4))
        with pytest.raises(ClientError) as ended:
            asyncio.run(reassignment.wait_for_moves(ClusterClient("localhost:1"), [Move("t", 1, (2,))], -1.0))
        assert str(ended.value).startswith(f"still moving after -1 s: t-1; {told}they go on")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ('"partition": 1e400, "replicas": [1]', "is not a reassignment plan like"),
        ('"partition": 1.5, "replicas": [1]', "is not a reassignment plan like"),
        ('"partition": 0, "replicas": "23"', "is not a reassignment plan like"),
        ('"partition": 0, "replicas": [1, 2], "log_dirs": ["/a"]', "log_dirs of t-0 has 1 path for 2 replicas: give"),
        ('"partition": 0, "replicas": [1], "log_dirs": "a"', "is not a reassignment plan like"),
        (f'"partition": 0, "replicas": {"[" * 100_000}', "is not a reassignment plan like"),
    ],
)
def test_what_is_no_plan(tmp_path: Path, row: str, told: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(f'{{"partitions": [{{"topic": "t", {row}}}]}}')
    result = CliRunner().invoke(cli, ["partitions", "reassign", "--file", str(path), "-b", "localhost:1"])
    assert result.exit_code == 2 and told in result.stderr
