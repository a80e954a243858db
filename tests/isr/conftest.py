"""Every cluster that a test of isr makes is disposed of after it, and must have no uncaught error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.isr.manager_cluster import dispose_clusters


@pytest.fixture(autouse=True)
def _dispose_clusters() -> Iterator[None]:
    yield
    dispose_clusters()
