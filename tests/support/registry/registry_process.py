"""A schema registry's process beside a test cluster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from support.process_end import told_until_its_end

from raftwerk.testkit.process_cluster import TestCluster


@contextmanager
def registry(cluster: TestCluster, topic: str = "_schemas") -> Iterator[str]:
    """A registry's process; gives its URL."""
    with registry_at(cluster.bootstrap_servers, topic) as (url, _):
        yield url


@contextmanager
def registry_at(
    bootstrap: str, topic: str, *options: str, scheme: str = "http"
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A registry's URL and process, which may be killed."""
    command = [sys.executable, "-m", "raftwerk", "registry", "--port", "0", "--topic", topic, "-b", bootstrap, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()  # the test's limit of time ends it if nothing comes
            assert line.startswith(f"schema registry at {scheme}://127.0.0.1:"), process.stderr.read()
            yield line.split()[3].rstrip(","), process
        finally:
            was_killed = process.poll() is not None
            process.terminate()
            told = told_until_its_end(process)
            assert "Traceback" not in told, told
            assert was_killed or process.returncode == 0, told
