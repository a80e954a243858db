"""What clients and brokers can make long on the active controller: nothing holds the loop, and nobody waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from support.broker.large_requests import ITERATION_S_MAX, Attack, only_requests_count
from support.controller.controller_listener import ControllerListener, State
from support.controller.long_admin_requests import ITEMS, LONG_REQUESTS, LongRequest
from support.processor_speed import times_slower

from raftwerk.broker.apis.api_table import API_TABLE
from raftwerk.controller.brokers.listener_probe import ProbeResult
from raftwerk.controller.metadata.metadata_image import MetadataImage
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

NEWEST = {spec.key: spec.versions[1] for spec in API_TABLE}


@pytest.fixture(autouse=True)
def _only_requests_count() -> Iterator[None]:
    with only_requests_count():
        yield


@pytest.mark.parametrize("long", [pytest.param(one, id=f"{one.key.name}-{one.name}") for one in LONG_REQUESTS])
def test_a_long_request_is_decided_in_parts(long: LongRequest) -> None:
    async def main() -> None:
        listener = long.cluster()
        await Attack(listener, long.key, NEWEST[long.key], long.fields).run()
        assert not listener.fatal
        listener.harness.controller.close()

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_fetch_of_more_than_the_metadata_log_is_refused() -> None:
    """Only that log is here, and Apache Kafka refuses the whole request, too."""

    async def main() -> None:
        rows = [{"partition": number, "fetch_offset": 0} for number in range(10 * ITEMS)]
        topics = [{"topic_id": UUID(int=1), "partitions": rows}]
        fields = {"max_wait_ms": 1, "min_bytes": 1, "topics": topics}
        listener = ControllerListener()
        answer = await Attack(listener, ApiKey.FETCH, NEWEST[ApiKey.FETCH], fields).run()
        assert answer.error_code == ErrorCode.INVALID_REQUEST and not answer.responses
        listener.harness.controller.close()

    asyncio.run(asyncio.wait_for(main(), 120))


def broker_1_is_dead(listener: ControllerListener) -> None:
    listener.harness.probes.down["b1", 9092] = ProbeResult.REFUSED
    listener.harness.controller.on_broker_disconnected(1)


def unclean_elections_are_allowed(listener: ControllerListener) -> None:
    row = {"name": "unclean.leader.election.enable", "config_operation": 0, "value": "true"}
    resource = {"resource_type": 4, "resource_name": "", "configs": [row]}
    fields = {"resources": [resource], "validate_only": False}
    listener.connect().deliver(listener.frame(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields))


def nothing_happens(listener: ControllerListener) -> None:
    pass


def all_are_led_by(*leaders: int) -> Callable[[MetadataImage], bool]:
    return lambda image: all(partition.leader in leaders for _, _, partition in image.all_partitions())


@pytest.mark.parametrize(
    ("state", "event", "is_done"),
    [
        (State.HEALTHY, broker_1_is_dead, all_are_led_by(2, 3)),
        (State.SHRUNK, broker_1_is_dead, all_are_led_by(2, 3)),
        (State.MOVED, nothing_happens, all_are_led_by(1)),
        (State.LEADERLESS, unclean_elections_are_allowed, all_are_led_by(2, 3)),
        (State.FORGOTTEN, nothing_happens, all_are_led_by(1)),
    ],
)
@pytest.mark.parametrize("is_one_topic", [True, False])
def test_what_nobody_asked_for_is_decided_in_parts(
    state: State,
    event: Callable[[ControllerListener], None],
    is_done: Callable[[MetadataImage], bool],
    is_one_topic: bool,
) -> None:
    async def main() -> float:
        size = {"partitions": ITEMS} if is_one_topic else {"topics": ITEMS}
        quick = {"auto_leader_rebalance_enable": state is State.MOVED, "leader_imbalance_check_interval_ms": 10}
        listener = ControllerListener(**size, state=state, **quick)
        event(listener)
        longest_s = 0.0
        for iteration in range(100_000):
            began = time.thread_time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - began)
            if iteration % 50 == 0 and is_done(listener.harness.image):
                break
        assert is_done(listener.harness.image)
        listener.harness.controller.close()
        return longest_s

    bound_s = ITERATION_S_MAX * times_slower()
    assert any(asyncio.run(main()) < bound_s for _ in range(3))
