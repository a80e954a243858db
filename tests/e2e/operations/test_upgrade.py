"""A rolling upgrade from an earlier commit to today's software, and back, with real processes under load."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.e2e import helpers
from support.e2e.dynamic_nodes import RAFTWERK, TIMEOUT_S, Nodes, run

EARLIER = "d20e2248702b"
"""The last commit that knew one form of metadata records only."""
GAP_LIMIT_S = 2.0
IDS = (1, 2, 3)
LEVEL = "raftwerk.record.version"
TRANSACTIONS = "transaction.version"


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The earlier software, out of the history."""
    root = Path(__file__).parents[3]
    target = tmp_path_factory.mktemp("earlier")
    archive = subprocess.run(["git", "-C", str(root), "archive", EARLIER], capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip(f"the history is not here: {archive.stderr.decode()}")
    subprocess.run(["tar", "-x", "-C", str(target)], input=archive.stdout, check=True)
    where = subprocess.run(
        [sys.executable, "-P", "-c", "import raftwerk; print(raftwerk.__file__)"],
        env={**os.environ, "PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(target))
    return target


@pytest.fixture
def nodes(tmp_path: Path, earlier: Path) -> Iterator[Nodes]:
    """1, 2 and 3 run and vote, with the earlier software."""
    nodes = Nodes(tmp_path)
    try:
        nodes.form_quorum(IDS, earlier)
        yield nodes
    finally:
        nodes.kill_all()


def roll(nodes: Nodes, node_id: int, source: Path | None) -> None:
    """One node is stopped and started with other software."""
    nodes.stop(node_id)
    nodes.wait_ready(node_id, nodes.start(node_id, source))


def refused(*arguments: str) -> str:
    done = subprocess.run([*RAFTWERK, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


def snapshots(nodes: Nodes, node_id: int) -> set[str]:
    return {path.name for path in (nodes.directory / f"node-{node_id}").glob("__cluster_metadata-0/*.checkpoint")}


def go_up(nodes: Nodes) -> None:
    """The new form is refused until the last node is new."""
    for node_id in (1, 2):
        roll(nodes, node_id, None)
        why = refused("features", "upgrade", "-b", nodes.broker(1))
        assert "only supports versions 0-0" in why or "Local controller does not support" in why
    roll(nodes, 3, None)
    bootstrap = nodes.bootstrap(IDS)
    told = run("features", "upgrade", "-b", bootstrap)
    assert f"{LEVEL}  level 0 -> 2\n" in told
    assert f"{TRANSACTIONS}  level 0 -> 2\n" in told
    assert "All features are at their highest levels." in run("features", "upgrade", "-b", bootstrap)
    helpers.create_topic(bootstrap, "compact", 3)


def try_the_earlier(nodes: Nodes, earlier: Path) -> None:
    """It says why it stops."""
    nodes.stop(3)
    os.close(nodes.start(3, earlier))
    assert nodes.processes.pop(3).wait(TIMEOUT_S) != 0
    said = (nodes.directory / "n3.log").read_text().splitlines()[-1]
    assert "was written by a newer node: upgrade this one before it joins" in said
    nodes.wait_ready(3, nodes.start(3))


def go_back(nodes: Nodes, earlier: Path) -> None:
    """The older form first; the older software when there are snapshots to start from."""
    bootstrap = nodes.bootstrap(IDS)
    before = {node_id: snapshots(nodes, node_id) for node_id in IDS}
    assert "downgrade" in refused("features", "set", f"{LEVEL}=0", "-b", bootstrap)
    run("features", "set", f"{LEVEL}=0", f"{TRANSACTIONS}=0", "--downgrade", "-b", bootstrap)
    deadline = time.monotonic() + TIMEOUT_S
    while any(snapshots(nodes, node_id) <= before[node_id] for node_id in IDS):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for node_id in IDS:
        roll(nodes, node_id, earlier)
    helpers.create_topic(bootstrap, "plain", 3)


@pytest.mark.long
def test_up_and_back_again(nodes: Nodes, earlier: Path) -> None:
    bootstrap = nodes.bootstrap(IDS)
    helpers.create_topic(bootstrap, "hot", min_insync_replicas="2")
    stream = helpers.Load(bootstrap, "hot", rate=200)
    stream.run(0.5)

    def operate() -> None:
        go_up(nodes)
        try_the_earlier(nodes, earlier)
        go_back(nodes, earlier)

    with ThreadPoolExecutor(1) as pool:
        operator = pool.submit(operate)
        while not operator.done():
            stream.run(0.2)
        operator.result()
    stream.run(0.5)
    stream.finish()
    stream.check(bootstrap)
    print(f"{len(stream.acked)} acked, longest gap {stream.longest_gap_s():.2f} s")
    assert stream.longest_gap_s() <= GAP_LIMIT_S
