"""controller_mutation_rate: token buckets, strict and permissive versions, and throttled clients of brokers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.broker.broker_harness import decode_answer, run, settle
from support.controller.controller_listener import ControllerListener

from raftwerk.broker.quotas.sampled_rate import QuotaWindow
from raftwerk.broker.quotas.token_bucket import TokenBucket
from raftwerk.controller.metadata.metadata_image import MetadataDelta
from raftwerk.controller.metadata.metadata_records import ClientQuotaRecord
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct, encode_request
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.frames import RequestHeader
from raftwerk.wire.frames import encode_request as encode_frame

REFUSED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 50))), st.floats(0.1, 10))
def test_a_bucket_gives_its_burst_and_its_rate(events: list[tuple[int, int]], rate: float) -> None:
    """What is let through while it is not overdrawn is at most the burst, the rate, and one request."""
    bucket = TokenBucket(QuotaWindow())
    now_ms, taken = 0, 0
    for wait_ms, count in events:
        now_ms += wait_ms
        if bucket.tokens(rate, now_ms) >= 0:
            bucket.take(count, rate, now_ms)
            taken += count
        assert taken <= rate * (11 + now_ms / 1000) + 50 + 1e-6
        assert bucket.tokens(rate, now_ms + bucket.throttle_ms(rate, now_ms) + 1) >= 0


def test_a_bucket_by_hand() -> None:
    bucket = TokenBucket(QuotaWindow())
    bucket.take(12, 1.0, 5_000)
    assert (bucket.tokens(1.0, 5_000), bucket.throttle_ms(1.0, 5_000)) == (-1, 1000)
    assert not bucket.is_full(1.0, 16_999)
    assert bucket.is_full(1.0, 17_000)


def listener() -> ControllerListener:
    made = ControllerListener()
    image = made.harness.quorum.loader.image
    record = ClientQuotaRecord((("client-id", "test"),), "controller_mutation_rate", 1.0)
    delta = MetadataDelta()
    image.replay(record, image.offset + 1, delta)
    made.services.mutation_quotas.on_metadata(image, delta)
    return made


def new_topics(*counts: int) -> dict[str, Any]:
    rows = [
        {"name": f"t{index}", "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
        for index, count in enumerate(counts)
    ]
    return {"topics": rows, "timeout": 1000, "validate_only": True}


@pytest.mark.parametrize(
    ("version", "codes", "throttle_ms"), [(5, [0, 0, 0], 6000), (7, [0, int(REFUSED), int(REFUSED)], 2000)]
)
def test_new_topics_beyond_the_quota(version: int, codes: list[int], throttle_ms: int) -> None:
    """Strict from version 6 on; before, all are created. The client waits in both cases."""

    async def main() -> None:
        made = listener()
        transport = made.connect()
        transport.deliver(made.frame(ApiKey.CREATE_TOPICS, version, new_topics(13, 2, 2)))
        await settle(50)
        (frame,) = transport.frames()
        answer: Struct = decode_answer(ApiKey.CREATE_TOPICS, version, frame)
        assert [row.error_code for row in answer.topics] == codes
        assert throttle_ms - 1900 <= answer.throttle_time <= throttle_ms
        transport.deliver(made.frame(ApiKey.CREATE_TOPICS, version, new_topics(1)))
        await settle(50)
        assert len(transport.frames()) == 1, "the connection is not read"
        assert not made.fatal

    run(main())


def test_a_forwarded_request_is_throttled_by_its_broker() -> None:
    """The answer in the envelope has the throttle time, and the connection of the broker goes on."""

    async def main() -> None:
        made = listener()
        transport = made.connect()
        inner = b"".join(
            encode_frame(
                RequestHeader(ApiKey.CREATE_TOPICS, 5, 9, "test"),
                encode_request(ApiKey.CREATE_TOPICS, 5, new_topics(13)),
            )
        )[4:]
        fields = {"request_data": inner, "request_principal": None, "client_host_address": bytes(4)}
        for _ in range(2):
            transport.deliver(made.frame(ApiKey.ENVELOPE, 0, fields))
            await settle(50)
        assert len(transport.frames()) == 2

    run(main())
