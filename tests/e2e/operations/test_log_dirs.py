"""Several log directories a node, on real processes: one fails under load; replicas move, by Java's tools too."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.e2e import helpers
from support.e2e.in_process import ok
from support.e2e.java_tools import JavaTools

from raftwerk.cli.main import cli
from raftwerk.cluster.client.admin_client import AdminClient, LogDir
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.reassignment import Move, alter_replica_log_dirs, wait_for_moves
from raftwerk.cluster.command_line.plural import size_text
from raftwerk.cluster.local.layout import ClusterPlan, ClusterShape, NodePlan, plan_cluster
from raftwerk.cluster.local.supervisor import Supervisor
from raftwerk.console.actions.storage import StorageActions

LIMIT_S = 60.0
GAP_LIMIT_S = 5.0


def with_more_dirs(plan: ClusterPlan, node: NodePlan) -> NodePlan:
    dirs = [node.properties["log.dirs"], *disks_of(plan.directory, node.node_id)]
    return replace(node, properties={**node.properties, "log.dirs": ",".join(dirs)})


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    """Three nodes with three directories each."""
    root = tmp_path_factory.mktemp("dirs")
    plan = plan_cluster(str(root), ClusterShape(brokers=3, port=0))
    supervisor = Supervisor(replace(plan, nodes=tuple(with_more_dirs(plan, node) for node in plan.nodes)))
    supervisor.start(LIMIT_S)
    yield supervisor
    supervisor.stop()


def disks_of(directory: str, node_id: int) -> list[str]:
    return [f"{directory}/disk-{node_id}-{letter}" for letter in "ab"]


def dirs_of(bootstrap: str, broker: int) -> dict[str, LogDir]:
    async def run() -> list[LogDir]:
        async with ClusterClient(bootstrap) as client:
            return (await AdminClient(client).describe_log_dirs([broker])).whole()

    return {one.path: one for one in asyncio.run(run())}


def names_in(log_dir: LogDir, topic: str) -> list[int]:
    return sorted(one["partition"] for one in log_dir.replicas if one["topic"] == topic and not one["moving_here"])


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def isr_sizes(bootstrap: str, topic: str) -> list[int]:
    return [len(one.isr) for one in helpers.describe(bootstrap, topic).topic(topic).partitions]


def test_moves_between_directories(nodes: Supervisor, topic: str) -> None:
    bootstrap = nodes.plan.bootstrap
    helpers.create_topic(bootstrap, topic, min_insync_replicas="2")
    load = helpers.Load(bootstrap, topic)
    load.run(0.5)
    targets = [disks_of(nodes.plan.directory, node_id)[0] for node_id in (1, 2, 3)]

    async def move(paths: list[str]) -> None:
        async with ClusterClient(bootstrap) as client:
            moves = [Move(topic, 0, (1, 2, 3), tuple(paths))]
            await alter_replica_log_dirs(client, moves)
            await wait_for_moves(client, moves, LIMIT_S)

    asyncio.run(move(targets))
    load.run(0.5)
    asyncio.run(move([path.replace("-a", "-b") for path in targets]))
    load.run(0.5)
    load.finish()
    load.check()
    for node_id, path in enumerate(targets, start=1):
        held = dirs_of(bootstrap, node_id)
        assert names_in(held[path], topic) == []
        assert names_in(held[path.replace("-a", "-b")], topic) == [0]
        assert held[path].total_bytes > held[path].usable_bytes > 0


def test_a_move_between_directories_is_shown_cancelled_and_followed(
    nodes: Supervisor, topic: str, tmp_path: Path
) -> None:
    bootstrap, rate = nodes.plan.bootstrap, "replica.alter.log.dirs.io.max.bytes.per.second"
    at = ("-b", bootstrap)
    helpers.create_on(bootstrap, topic, [[1, 2, 3]])
    ok("perf", "produce", topic, *at, "--records", "100", "--record-size", "10000")
    (source,) = [path for path, one in dirs_of(bootstrap, 1).items() if names_in(one, topic)]
    target = next(path for path in dirs_of(bootstrap, 1) if path != source)
    plans: dict[str, Path] = {}
    for path in (source, target):
        row = {"topic": topic, "partition": 0, "replicas": [1, 2, 3], "log_dirs": [path, "any", "any"]}
        plans[path] = tmp_path / f"{len(plans)}.json"
        plans[path].write_text(json.dumps({"version": 1, "partitions": [row]}))
    begin, cancel = (("partitions", "reassign", "--file", str(plans[path]), *at) for path in (target, source))

    def under_way() -> tuple[str, str]:
        done = CliRunner().invoke(cli, ["partitions", "reassignments", *at])
        return done.stdout, done.stderr

    ok("configs", "set", "--all-brokers", f"{rate}=1", *at)  # so slow that it does not end by itself
    try:
        ok(*begin)
        assert under_way()[0].startswith(f"{topic}-0  broker 1  from {source}  to {target}  ")
        shown = helpers.ask(bootstrap, lambda client: StorageActions(client).reassignments())
        (move,) = shown["directory_moves"]
        assert (shown["moves"], shown["missing"]) == ([], [])
        assert (move["topic"], move["broker"], move["from"], move["to"]) == (topic, 1, source, target)
        assert 0 <= move["copied_bytes"] < move["total_bytes"] > 1_000_000
        shown = helpers.ask(bootstrap, lambda client: StorageActions(client).log_dirs())
        cards = {one["path"]: one for one in shown["log_dirs"]}
        rows = [next(row for row in cards[path]["topics"] if row["topic"] == topic) for path in (source, target)]
        assert [(row["replicas"], row["moving_here"]) for row in rows] == [(1, 0), (0, 1)]
        assert cards[target]["moving_here"] == 1
        ok(*cancel)
        assert under_way() == ("", "Nothing is moving.\n")
        ok("configs", "set", "--all-brokers", f"{rate}=100000000", *at)
        followed = CliRunner().invoke(cli, [*begin, "--wait"])
    finally:
        ok("configs", "unset", "--all-brokers", rate, *at)
    assert (followed.exit_code, followed.stdout) == (0, "Moved 1 partition.\n"), followed.output
    size = size_text(move["total_bytes"])
    assert followed.stderr.splitlines()[-1] == f"1 of 1 partition moved, {size} of {size} copied"
    assert names_in(dirs_of(bootstrap, 1)[target], topic) == [0]


@pytest.mark.java
def test_java_tools(nodes: Supervisor, topic: str, java_tools: JavaTools, tmp_path: Path) -> None:
    """16 MB at 4 MB/s for both together, of which a second's worth may pass at once, and some pieces too much."""
    bootstrap = nodes.plan.bootstrap
    helpers.create_topic(bootstrap, topic, 2)
    ok("perf", "produce", topic, "-b", bootstrap, "--records", "1600", "--record-size", "10000")
    disk = next(path for path, one in sorted(dirs_of(bootstrap, 2).items()) if not names_in(one, topic))
    rows = [{"topic": topic, "partition": p, "replicas": [2, 3, 1], "log_dirs": [disk, "any", "any"]} for p in (0, 1)]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    asked = ("--bootstrap-server", bootstrap, "--reassignment-json-file", str(plan))
    tool = "reassign.ReassignPartitionsCommand"
    began = time.monotonic()
    throttle = ("--replica-alter-log-dirs-throttle", "4000000")
    told = java_tools.run(tool, *asked, "--execute", *throttle)
    assert f"moving log directory to {disk}" in told
    assert "replica-alter-dir throttle limit was set to 4000000 B/s" in told
    told = java_tools.run(tool, *asked, "--verify", "--preserve-throttles")
    assert told.count("is still in progress") + told.count("completed successfully") == 2
    until(lambda: names_in(dirs_of(bootstrap, 2)[disk], topic) == [0, 1], "both are where they were asked to be")
    assert time.monotonic() - began > 1.0
    verified = java_tools.run(tool, *asked, "--verify")
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified
    for partition in (0, 1):
        assert f"Reassignment of replica {topic}-{partition}-2 completed successfully." in verified
    described = java_tools.run("LogDirsCommand", "--bootstrap-server", bootstrap, "--describe", "--broker-list", "2")
    (broker,) = json.loads(next(line for line in described.splitlines() if line.startswith("{")))["brokers"]
    assert {one["logDir"]: one["error"] for one in broker["logDirs"]} == dict.fromkeys(dirs_of(bootstrap, 2))
    (held,) = [one["partitions"] for one in broker["logDirs"] if one["logDir"] == disk]
    assert {row["partition"] for row in held} >= {f"{topic}-0", f"{topic}-1"}


def test_a_disk_that_fails_under_load(nodes: Supervisor, topic: str) -> None:
    bootstrap = nodes.plan.bootstrap
    helpers.create_topic(bootstrap, topic, min_insync_replicas="2")
    load = helpers.Load(bootstrap, topic)
    load.run(0.5)
    victim = helpers.leader_of(bootstrap, topic)
    (lost,) = [path for path, one in dirs_of(bootstrap, victim).items() if names_in(one, topic)]
    if lost not in disks_of(nodes.plan.directory, victim):  # the metadata's: without that one the node ends

        async def move(path: str) -> None:
            async with ClusterClient(bootstrap) as client:
                moves = [Move(topic, 0, (victim,), (path,))]
                await alter_replica_log_dirs(client, moves)
                await wait_for_moves(client, moves, LIMIT_S)

        lost = disks_of(nodes.plan.directory, victim)[0]
        asyncio.run(move(lost))
    shutil.rmtree(lost)
    while not dirs_of(bootstrap, victim)[lost].error_code:
        load.run(0.5)
    load.run(1.5)
    assert helpers.leader_of(bootstrap, topic) != victim
    assert isr_sizes(bootstrap, topic) == [2]
    load.finish()
    load.check()
    assert load.longest_gap_s() < GAP_LIMIT_S
    nodes.kill(victim)
    nodes.start_node(victim)
    nodes.wait_ready()
    until(lambda: isr_sizes(bootstrap, topic) == [3], "on an empty disk the replica is made anew")
    assert not any(one.error_code for one in dirs_of(bootstrap, victim).values())
    load.check()
