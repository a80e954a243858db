"""Broker epochs at the ends of their range are refused as stale, and change nothing."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.controller.controller_harness import Harness, decoded, run

from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

DIRECTORY = UUID(int=2**100)


@pytest.mark.parametrize("epoch", [2**63 - 1, 2**63 - 2, 2**31, 0, -1, -2, -(2**63)])
def test_requests_with_extreme_broker_epochs_change_nothing(epoch: int) -> None:
    async def main() -> None:
        harness = Harness()
        for broker_id in (1, 2, 3):
            await harness.add_broker(broker_id)
        topic_id = await harness.create("t", (1, 2, 3))
        controller, end, before = harness.controller, harness.quorum.log_end_offset(), harness.partition("t")
        beat = await controller.broker_heartbeat(harness.heartbeat(2, broker_epoch=epoch, want_shut_down=True))
        assert beat["error_code"] == ErrorCode.STALE_BROKER_EPOCH
        offset = await controller.broker_heartbeat(harness.heartbeat(2, current_metadata_offset=epoch))
        assert (offset["error_code"], offset["is_fenced"]) == (0, False)
        row = {
            "partition_index": 0,
            "leader_epoch": 0,
            "new_isr_with_epochs": [{"broker_id": 1}],
            "leader_recovery_state": 0,
            "partition_epoch": 0,
        }
        topics = [{"topic_id": topic_id, "partitions": [row]}]
        altered = await controller.alter_partition(
            decoded(ApiKey.ALTER_PARTITION, broker_id=1, broker_epoch=epoch, topics=topics)
        )
        assert altered["error_code"] == ErrorCode.STALE_BROKER_EPOCH
        members = [{"broker_id": 1}, {"broker_id": 2, "broker_epoch": epoch}]
        topics = [{"topic_id": topic_id, "partitions": [{**row, "new_isr_with_epochs": members}]}]
        live = harness.image.brokers[1].epoch
        proposed = await controller.alter_partition(
            decoded(ApiKey.ALTER_PARTITION, broker_id=1, broker_epoch=live, topics=topics)
        )
        if epoch != -1:
            assert proposed["topics"][0]["partitions"][0]["error_code"] == ErrorCode.INELIGIBLE_REPLICA
        partitions = [{"topic_id": topic_id, "partitions": [{"partition_index": 0}]}]
        assigned = await controller.assign_replicas_to_dirs(
            decoded(
                ApiKey.ASSIGN_REPLICAS_TO_DIRS,
                broker_id=1,
                broker_epoch=epoch,
                directories=[{"id": DIRECTORY, "topics": partitions}],
            )
        )
        assert assigned["error_code"] == ErrorCode.STALE_BROKER_EPOCH
        ids = await controller.allocate_producer_ids(
            decoded(ApiKey.ALLOCATE_PRODUCER_IDS, broker_id=1, broker_epoch=epoch)
        )
        assert ids["error_code"] == ErrorCode.STALE_BROKER_EPOCH
        if epoch != -1:
            assert harness.quorum.log_end_offset() == end
            assert harness.partition("t") == before
        again = await controller.register_broker(harness.registration(4, previous_broker_epoch=epoch))
        assert again["error_code"] == 0
        assert harness.image.brokers[4].epoch == again["broker_epoch"] < 100

    run(main())
