"""BrokerRegistration in all versions that are served: what a version lacks stands in nobody's way."""

from __future__ import annotations

import pytest
from support.controller.controller_harness import Harness, scenario

from raftwerk.wire.errors import ErrorCode


@pytest.mark.parametrize("version", range(5))
def test_a_broker_registers(version: int) -> None:
    @scenario
    async def test() -> None:
        harness = Harness()
        answer = await harness.controller.register_broker(harness.registration(1, version=version))
        assert answer["error_code"] == 0
        assert harness.image.brokers[1].fenced

    test()


@scenario
async def test_a_broker_of_a_cluster_with_zookeeper_is_refused() -> None:
    harness = Harness()
    answer = await harness.controller.register_broker(harness.registration(1, is_migrating_zk_broker=True))
    assert answer["error_code"] == ErrorCode.INVALID_REQUEST
    assert harness.image.brokers == {}
