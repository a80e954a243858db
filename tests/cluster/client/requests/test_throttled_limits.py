"""The time for which a quota throttles a client is no part of the limits within which it asks again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raftwerk.cluster.client.cluster_client import BrokerView, ClusterClient, ClusterView, PartitionView, TopicView
from raftwerk.cluster.client.consumer import LATEST, Consumer
from raftwerk.cluster.client.requests.coordinator_requests import CoordinatorRequests, CoordinatorType
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import ConnectionLostError
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode

TIMEOUT_S = 0.1
THROTTLED_S = 0.3


class ThrottledClient(ClusterClient):
    """Of a broker that throttles it, and that answers to the first request thereafter that it is not the one to ask."""

    def __init__(self, refusal: int) -> None:
        super().__init__("a:1", timeout_s=TIMEOUT_S, probe_timeout_s=None)
        self.codes = [refusal, 0]
        self.throttling.is_silent = True

    async def metadata(self, topics: Any = None, **_: Any) -> ClusterView:
        partitions = (PartitionView(0, 1, 0, (1,), (1,)),)
        return ClusterView("c", 1, (BrokerView(1, "a", 1, None),), (TopicView("t", None, False, partitions),))

    async def request(self, *_: Any, **__: Any) -> Struct:
        row = SimpleNamespace(error_code=0, node_id=1, error_message=None)
        return cast(Struct, SimpleNamespace(coordinators=[row]))

    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: Any = None
    ) -> Struct:
        code = self.codes.pop(0)
        if code:
            self.throttling.on_throttled("a:1", asyncio.get_running_loop().time() + THROTTLED_S)
            await asyncio.sleep(THROTTLED_S)
        if code == ErrorCode.NETWORK_EXCEPTION:
            raise ConnectionLostError("it died")
        row = SimpleNamespace(error_code=code, partition_index=0, offset=7)
        return cast(Struct, SimpleNamespace(error_code=code, topics=[SimpleNamespace(partitions=[row])]))


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NETWORK_EXCEPTION])
def test_a_coordinator_is_asked_again_after_a_throttle_time_that_is_longer_than_the_time_out(code: int) -> None:
    async def run() -> None:
        groups = CoordinatorRequests(ThrottledClient(code), CoordinatorType.GROUP)
        answer = await groups.ask("g", ApiKey.OFFSET_COMMIT, 8, {}, lambda answer: [answer.error_code])
        assert answer.error_code == 0

    asyncio.run(run())


def test_the_leader_is_asked_again_for_offsets_as_well() -> None:
    async def run() -> None:
        consumer = Consumer(ThrottledClient(ErrorCode.NOT_LEADER_OR_FOLLOWER), "t")
        await consumer.start((), at=5)
        assert await consumer.offsets(LATEST, [0]) == {0: 7}

    asyncio.run(run())
