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
    command = [sys.executable, "-m", "raftwerk", "registry", "--port", "0", "--topic", topic]
    command += ["-b", cluster.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()  # the test's limit of time ends it if nothing comes
            assert line.startswith("schema registry at http://127.0.0.1:"), process.stderr.read()
            yield line.split()[3].rstrip(",")
        finally:
            process.terminate()
            told = told_until_its_end(process)
            assert "Traceback" not in told
            assert process.returncode == 0, told
