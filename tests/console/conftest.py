"""A console beside the cluster that each module of tests has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.console.console_process import console

from raftwerk.testkit.process_cluster import TestCluster


@pytest.fixture(scope="module")
def url(cluster: TestCluster) -> Iterator[str]:
    """The address of a console of the module's cluster."""
    with console(cluster) as address:
        yield address
