"""What is looked at after the attacks: nodes that are started again, and whether everything is served."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raftwerk.chaos.fuzz import run as fuzz_run
from raftwerk.chaos.fuzz import service_probe
from raftwerk.chaos.fuzz.node_watch import NodeWatch
from raftwerk.chaos.fuzz.run import FuzzOptions, FuzzRun
from raftwerk.chaos.fuzz.service_probe import LeftOut
from raftwerk.cluster.client.client_errors import RefusedError, UnreachableError
from raftwerk.wire.errors import ErrorCode

_TRACEBACK = 'ERROR node=1: Traceback (most recent call last) File "/a/log/recovery.py", line 3\n'


class LoggingNodes:
    """A supervisor of one node, which logs some lines when it is started again."""

    def __init__(self, log_file: Path, lines: str) -> None:
        log_file.write_text("")
        node = SimpleNamespace(node_id=1, log_file=str(log_file))
        self.plan = SimpleNamespace(bootstrap="127.0.0.1:1", nodes=[node], node=lambda _: node)
        self.children: dict[int, Any] = {}
        self._log_file, self._lines = log_file, lines

    def kill(self, _node_id: int) -> None:
        pass

    def restart_node(self, _node_id: int) -> None:
        with self._log_file.open("a") as file:
            file.write(self._lines)


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        (f"{_TRACEBACK}ERROR node=1: broken invariant: the log is sound\n", ["traceback", "broken-invariant"]),
        ("INFO node=1: broker-fenced broker=1\n", []),
    ],
)
def test_what_nodes_log_when_they_are_started_again_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, kinds: list[str]
) -> None:
    async def in_sync(*_: object) -> bool:
        return True

    monkeypatch.setattr(FuzzRun, "_probe", lambda *_: None)
    monkeypatch.setattr(service_probe, "in_sync_within", in_sync)
    monkeypatch.setattr(fuzz_run, "_SETTLE_S", 0.01)
    run, nodes = FuzzRun(FuzzOptions(str(tmp_path), kills=1), lambda _: None), LoggingNodes(tmp_path / "n1.log", lines)
    run._kill_and_probe(nodes, NodeWatch(nodes))  # type: ignore[arg-type]
    assert [one.kind for one in run.findings.values()] == kinds
    assert {one.attack for one in run.findings.values()} <= {"restart"}


class Refusing:
    """A client of a cluster that gives no metadata."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def __aenter__(self) -> Refusing:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def metadata(self, _topics: object) -> Any:
        raise self._error


@pytest.mark.parametrize(
    ("error", "is_served"),
    [
        (UnreachableError({("127.0.0.1", 9092): "does not answer in time"}), False),
        (RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic t"), False),
        (RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t"), True),
    ],
)
def test_a_partition_of_a_cluster_that_does_not_answer_is_not_served(
    monkeypatch: pytest.MonkeyPatch, error: Exception, is_served: bool
) -> None:
    """One that was deleted meanwhile need not be served."""
    monkeypatch.setattr(service_probe, "_TRY_FOR_S", 0.0)
    monkeypatch.setattr(service_probe, "_PAUSE_S", 0.0)
    client: Any = Refusing(error)
    assert (asyncio.run(service_probe._probe_partition(client, "t", 0)) is None) == is_served
    monkeypatch.setattr(service_probe, "ClusterClient", lambda *_, **__: client)
    unreadable = asyncio.run(service_probe.unreadable_partitions("127.0.0.1:1", ["t"], LeftOut()))
    assert unreadable == ([] if is_served else [f"t: {error}"])
