"""The table of APIs: who serves what, and that an error body fits every version it is sent in."""

from __future__ import annotations

import pytest

from raftwerk.broker.api import ApiSpec, Forwarded
from raftwerk.broker.apis.api_table import API_TABLE, broker_registry, controller_registry
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import decode_request, decode_response, encode_request, encode_response
from raftwerk.wire.errors import ErrorCode

VERSIONS = [
    pytest.param(spec, version, id=f"{spec.key.name}-v{version}")
    for spec in API_TABLE
    if spec.error is not None
    for version in range(spec.versions[0], spec.versions[1] + 1)
]


def test_each_api_stands_in_one_row_and_has_a_listener() -> None:
    keys = [spec.key for spec in API_TABLE]
    assert len(set(keys)) == len(keys)
    assert all(spec.broker is not None or spec.controller is not None for spec in API_TABLE)


def test_listeners_serve_what_the_table_says() -> None:
    assert [api.key for api in broker_registry()] == sorted(spec.key for spec in API_TABLE if spec.broker is not None)
    assert [api.key for api in controller_registry()] == sorted(
        spec.key for spec in API_TABLE if spec.controller is not None
    )


def test_forwarded_apis_are_served_on_both_listeners() -> None:
    for spec in API_TABLE:
        if spec.is_forwarded:
            assert spec.broker is not None
            assert spec.controller is not None
        assert spec.is_forwarded or not isinstance(spec.broker, Forwarded)


def test_what_brokers_and_clients_pipeline_overlaps() -> None:
    assert [spec.key for spec in API_TABLE if spec.overlaps] == [
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.WRITE_TXN_MARKERS,
    ]


@pytest.mark.parametrize(("spec", "version"), VERSIONS)
def test_error_bodies_fit_their_versions(spec: ApiSpec, version: int) -> None:
    """An error body is built from the smallest request of the version, and is a response of that version."""
    request = decode_request(spec.key, version, encode_request(spec.key, version, {}))
    assert spec.error is not None
    fields = spec.error(request, ErrorCode.REQUEST_TIMED_OUT, "")
    answer = decode_response(spec.key, version, encode_response(spec.key, version, fields))
    assert answer.get("error_code", ErrorCode.REQUEST_TIMED_OUT) == ErrorCode.REQUEST_TIMED_OUT
