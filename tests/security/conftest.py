"""What several tests of TLS need: an authority that issues certificates, and both event loops."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from support.security.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop])
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    return asyncio.Runner(loop_factory=request.param)
