"""Jobs log in at secured clusters as `--command-config`, or the local cluster that is named, says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.e2e.command import fails, ok, raftwerk

from raftwerk.cluster.local.client_files import ADMIN
from raftwerk.pipeline.jobs.job_command import ReadSettings
from raftwerk.pipeline.jobs.lake import Lake, LakeOptions
from raftwerk.pipeline.jobs.mirror import Mirror, MirrorOptions
from raftwerk.pipeline.login import login_in_file
from raftwerk.pipeline.running_query import Metrics, ProgressLog
from raftwerk.pipeline.topics import FORMATS, Topics
from raftwerk.testkit.process_cluster import TestCluster

pytest.importorskip("pyspark", reason="no PySpark: jobs are NOT tested")
FLIGHTS = 500


@pytest.fixture(scope="module")
def secured() -> Iterator[TestCluster]:
    with TestCluster.start(1, settings={"log.retention.ms": "-1"}, secure=True) as running:
        ok("pipeline", "feed", "-n", str(FLIGHTS), "-d", running.plan.directory)
        yield running


def run(job: Any) -> Any:
    stream = job.start(ReadSettings(once=True), ProgressLog(quiet=True), Metrics("job", None))
    stream.follow()
    return stream


@pytest.mark.parametrize("source", FORMATS)
def test_a_job_reads_from_a_secured_cluster(spark: Any, secured: TestCluster, tmp_path: Path, source: str) -> None:
    login = login_in_file(secured.client_properties(ADMIN))
    topics = Topics(secured.bootstrap_servers, ("flights",), source, login=login)
    topics.check()
    options = LakeOptions(str(tmp_path / "lake"), "json", "number BIGINT", ())
    assert run(Lake(spark, topics, options)).rows == FLIGHTS


def test_a_mirror_logs_in_at_each_of_its_clusters(
    spark: Any, secured: TestCluster, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    login = login_in_file(secured.client_properties(ADMIN))
    out = MirrorOptions(bootstrap, str(tmp_path / "out"), f"{topic}-")
    mirror = Mirror(spark, Topics(secured.bootstrap_servers, ("flights",), login=login), out)
    run(mirror)
    assert mirror.copied.counts()["rows"] == FLIGHTS
    copied = Topics(bootstrap, (f"{topic}-flights",))
    back = MirrorOptions(secured.bootstrap_servers, str(tmp_path / "back"), "back-", target_login=login)
    mirror = Mirror(spark, copied, back)
    run(mirror)
    assert mirror.copied.counts()["rows"] == FLIGHTS
    assert f"back-{topic}-flights" in ok("topics", "list", "-d", secured.plan.directory).split()


@pytest.mark.long
def test_the_command_of_a_job_logs_in(secured: TestCluster, tmp_path: Path) -> None:
    """By the file that is named; without one it says what is missing."""
    job = ("pipeline", "run", "lake", "-t", "flights", "--output", str(tmp_path / "lake"), "-e", "--json")
    where = ("-b", secured.bootstrap_servers)
    told = raftwerk(*job, *where, "--command-config", secured.client_properties(ADMIN), timeout=120)
    assert (told.returncode, json.loads(told.stdout)["rows"]) == (0, FLIGHTS), told.stderr
    assert "say how to log in there (--command-config" in fails(1, *job, *where)


def test_a_refused_login_is_to_be_corrected(secured: TestCluster, tmp_path: Path) -> None:
    """The cluster is up, so nobody is told to start it; nodes of which the same is to be said are named together."""
    right = Path(secured.client_properties(ADMIN)).read_text(encoding="utf-8")
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(re.sub('password="[^"]*"', 'password="wrong"', right), encoding="utf-8")
    twice = f"{secured.bootstrap_servers},{secured.bootstrap_servers.replace('127.0.0.1', 'localhost')}"
    job = ("pipeline", "run", "lake", "-t", "flights", "--output", str(tmp_path / "lake"), "-b", twice)
    said = fails(1, *job, "--command-config", str(wrong))
    assert f"; correct the user name or the password in sasl.jaas.config in {wrong}" in said
    assert "start that cluster" not in said
    assert said.count("refuses the login") == 1 and "; likewise localhost:" in said
    wrong.write_text("security.protocol=SSL\n" + "".join(line for line in right.splitlines(True) if "ssl." in line))
    assert f"sasl.mechanism and sasl.jaas.config in {wrong}" in fails(1, *job, "--command-config", str(wrong))
    assert "start that cluster" not in fails(1, *job)
