"""Registration, heartbeats and shutdown of a broker, as a state machine."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from support.broker.broker_harness import LISTENER

from raftwerk.broker.config import AdvertisedListener, BrokerConfig
from raftwerk.broker.to_controller.broker_lifecycle import (
    BrokerLifecycle,
    BrokerState,
    LifecycleRequest,
    RegistrationRefused,
)
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import encode_request
from raftwerk.wire.errors import ErrorCode

CONFIG = BrokerConfig(
    node_id=1,
    cluster_id="c",
    listeners=(AdvertisedListener(LISTENER, "h", 9092),),
    inter_broker_listener=LISTENER,
    supported_features={"metadata.version": (7, 27)},
)


def registered(epoch: int) -> Any:
    return SimpleNamespace(error_code=0, broker_epoch=epoch)


def beat(fenced: bool = True, caught_up: bool = True, shut_down: bool = False, code: int = 0) -> Any:
    return SimpleNamespace(error_code=code, is_fenced=fenced, is_caught_up=caught_up, should_shut_down=shut_down)


def exchange(lifecycle: BrokerLifecycle, offset: int, response: Any) -> LifecycleRequest:
    request = lifecycle.next_request(offset)
    lifecycle.on_response(request, response)
    return request


def running() -> BrokerLifecycle:
    lifecycle = BrokerLifecycle(CONFIG, UUID(int=5))
    exchange(lifecycle, 0, registered(10))
    exchange(lifecycle, 10, beat(fenced=False))
    return lifecycle


def test_from_start_to_running() -> None:
    lifecycle = BrokerLifecycle(CONFIG, UUID(int=5))
    first = lifecycle.next_request(3)
    assert (first.api_key, first.fields["incarnation_id"]) == (ApiKey.BROKER_REGISTRATION, UUID(int=5))
    assert encode_request(first.api_key, first.version, first.fields)
    lifecycle.on_response(first, registered(10))
    assert lifecycle.state is BrokerState.RECOVERY
    behind = exchange(lifecycle, 9, beat())
    assert behind.fields["want_fence"] is True
    assert lifecycle.delay_ms == 50
    caught_up = exchange(lifecycle, 10, beat(fenced=False))
    assert caught_up.fields["want_fence"] is False
    assert (lifecycle.state, lifecycle.fenced, lifecycle.delay_ms) == (BrokerState.RUNNING, False, 2000)


def test_a_duplicate_registration_is_tried_again() -> None:
    lifecycle = BrokerLifecycle(CONFIG, UUID(int=5))
    refused = SimpleNamespace(error_code=int(ErrorCode.DUPLICATE_BROKER_REGISTRATION), broker_epoch=-1)
    exchange(lifecycle, 0, refused)
    assert lifecycle.state is BrokerState.STARTING
    assert lifecycle.delay_ms == 100


def test_a_registration_in_another_cluster_is_fatal() -> None:
    lifecycle = BrokerLifecycle(CONFIG, UUID(int=5))
    refused = SimpleNamespace(error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID), broker_epoch=-1)
    with pytest.raises(RegistrationRefused, match="INCONSISTENT_CLUSTER_ID"):
        exchange(lifecycle, 0, refused)


def test_heartbeats_are_frequent_while_the_broker_is_fenced() -> None:
    lifecycle = running()
    exchange(lifecycle, 20, beat(fenced=True))
    assert (lifecycle.state, lifecycle.delay_ms) == (BrokerState.RUNNING, 50)


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_a_lost_registration_is_repeated(code: int) -> None:
    lifecycle = running()
    exchange(lifecycle, 20, beat(code=int(code)))
    assert (lifecycle.state, lifecycle.fenced) == (BrokerState.STARTING, True)
    again = exchange(lifecycle, 20, registered(30))
    assert again.fields["previous_broker_epoch"] == 10
    assert lifecycle.broker_epoch == 30


def test_a_response_of_a_former_registration_is_ignored() -> None:
    lifecycle = running()
    old = lifecycle.next_request(20)
    exchange(lifecycle, 20, beat(code=int(ErrorCode.STALE_BROKER_EPOCH)))
    exchange(lifecycle, 20, registered(30))
    lifecycle.on_response(old, beat(code=int(ErrorCode.STALE_BROKER_EPOCH)))
    assert lifecycle.state is BrokerState.RECOVERY


def test_controlled_shutdown() -> None:
    lifecycle = running()
    lifecycle.begin_shutdown()
    assert exchange(lifecycle, 20, beat(fenced=False)).fields["want_shut_down"] is True
    assert (lifecycle.over, lifecycle.delay_ms) == (False, 50)
    exchange(lifecycle, 21, beat(shut_down=True))
    assert lifecycle.over


def test_an_unregistered_broker_shuts_down_at_once() -> None:
    lifecycle = BrokerLifecycle(CONFIG, UUID(int=5))
    lifecycle.begin_shutdown()
    assert lifecycle.over


def test_a_failed_directory_is_reported_and_not_registered_again() -> None:
    config = replace(CONFIG, log_dir_ids=(UUID(int=200), UUID(int=201)))
    lifecycle = BrokerLifecycle(config, UUID(int=5))
    first = exchange(lifecycle, 0, registered(10))
    assert first.fields["log_dirs"] == [UUID(int=200), UUID(int=201)]
    exchange(lifecycle, 10, beat(fenced=False))
    lifecycle.on_dir_failed(UUID(int=201))
    assert not lifecycle.knows_failed(UUID(int=201))
    lost = exchange(lifecycle, 11, beat(code=ErrorCode.NOT_CONTROLLER))
    assert lost.fields["offline_log_dirs"] == [UUID(int=201)]
    assert encode_request(lost.api_key, lost.version, lost.fields)
    assert not lifecycle.knows_failed(UUID(int=201))
    exchange(lifecycle, 11, beat(fenced=False))
    assert lifecycle.knows_failed(UUID(int=201))
    exchange(lifecycle, 11, beat(code=ErrorCode.STALE_BROKER_EPOCH))
    again = exchange(lifecycle, 11, registered(20))
    assert again.fields["log_dirs"] == [UUID(int=200)]


def test_a_copied_directory_is_refused_with_advice() -> None:
    lifecycle = BrokerLifecycle(CONFIG, UUID(int=5))
    refused = SimpleNamespace(error_code=ErrorCode.INVALID_REGISTRATION)
    with pytest.raises(RegistrationRefused, match=r"same directory\.id, as after a copy of its disk: empty the copy"):
        exchange(lifecycle, 0, refused)
