"""Policies of the operator for new topics and for changed configurations."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.controller.controller_harness import Harness, decoded, run

from raftwerk.controller.policies import AlterConfigRequest, NewTopicRequest, Policies, PolicyViolation
from raftwerk.controller.settings import ControllerSettings
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode


class Asked:
    """Remembers its requests. Refuses names with `bad`, fails at names with `bug`, and exits at `exit`."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def validate(self, request: Any) -> None:
        self.requests.append(request)
        name = request.topic if isinstance(request, NewTopicRequest) else request.configs.get("retention.ms") or ""
        if "bad" in name or name == "1":
            raise PolicyViolation("not in this house")
        if "bug" in name or name == "2":
            raise KeyError("the policy's own")
        if "exit" in name:
            raise SystemExit(3)


def topic(name: str, **more: Any) -> dict[str, Any]:
    row = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": []}
    return {**row, **more}


async def create(
    harness: Harness, *topics: dict[str, Any], validate_only: bool = False
) -> list[tuple[int, str | None]]:
    answer = await harness.controller.create_topics(
        decoded(ApiKey.CREATE_TOPICS, topics=list(topics), validate_only=validate_only)
    )
    return [(row["error_code"], row["error_message"]) for row in answer["topics"]]


async def alter(harness: Harness, kind: int, name: str, **values: str | None) -> tuple[int, str | None]:
    rows = [
        {"name": key.replace("_", "."), "config_operation": 1 if value is None else 0, "value": value}
        for key, value in values.items()
    ]
    resources = [{"resource_type": kind, "resource_name": name, "configs": rows}]
    answer = await harness.controller.incremental_alter_configs(
        decoded(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=resources, validate_only=False)
    )
    row = answer["responses"][0]
    return row["error_code"], row["error_message"]


def harness_with(policy: Asked) -> Harness:
    return Harness(
        ControllerSettings(1, num_partitions=2, default_replication_factor=1, policies=Policies(policy, policy))
    )


def test_new_topics() -> None:
    async def scenario() -> None:
        policy = Asked()
        harness = harness_with(policy)
        await asyncio.sleep(0)
        await harness.add_broker(1)
        configs = [{"name": "retention.ms", "value": "5"}]
        manual = [{"partition_index": 0, "broker_ids": [1]}]
        answers = await create(
            harness, topic("good", configs=configs), topic("bad"), topic("bug"), topic("by-hand", assignments=manual)
        )
        assert [code for code, _ in answers] == [0, ErrorCode.POLICY_VIOLATION, ErrorCode.UNKNOWN_SERVER_ERROR, 0]
        assert answers[1][1] == "not in this house"
        assert "create.topic.policy.class.name failed: KeyError" in str(answers[2][1])
        assert policy.requests[0] == NewTopicRequest("good", 2, 1, None, {"retention.ms": "5"})
        assert policy.requests[3] == NewTopicRequest("by-hand", None, None, {0: (1,)}, {})
        assert list(harness.image.topics_by_name) == ["good", "by-hand"]
        assert (await create(harness, topic("exit")))[0][0] == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await create(harness, topic("bad"), validate_only=True))[0][0] == ErrorCode.POLICY_VIOLATION
        assert (await create(harness, topic("late")))[0][0] == 0, "the controller lives on"

    run(scenario())


def test_configurations() -> None:
    async def scenario() -> None:
        policy = Asked()
        harness = harness_with(policy)
        await asyncio.sleep(0)
        await harness.add_broker(1)
        await create(harness, topic("t", configs=[{"name": "segment.ms", "value": "9"}]))
        policy.requests.clear()
        assert await alter(harness, 2, "t", retention_ms="1") == (ErrorCode.POLICY_VIOLATION, "not in this house")
        assert (await alter(harness, 2, "t", retention_ms="2"))[0] == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await alter(harness, 2, "t", retention_ms="7", segment_ms=None) == (0, None)
        assert await alter(harness, 4, "", message_max_bytes="1000") == (0, None)
        assert policy.requests[2:] == [
            AlterConfigRequest("topic", "t", {"retention.ms": "7", "segment.ms": None}),
            AlterConfigRequest("broker", "", {"message.max.bytes": "1000"}),
        ]
        assert harness.image.configs[2, "t"] == {"retention.ms": "7"}

    run(scenario())


@pytest.mark.parametrize("replaced", [{}, {"retention.ms": "8"}])
def test_policies_do_not_see_removals_by_alter_configs(replaced: dict[str, str]) -> None:
    """AlterConfigs removes the configurations that it does not name."""

    async def scenario() -> None:
        policy = Asked()
        harness = harness_with(policy)
        await asyncio.sleep(0)
        await harness.add_broker(1)
        await create(harness, topic("t", configs=[{"name": "segment.ms", "value": "9"}]))
        rows = [{"name": name, "value": value} for name, value in replaced.items()]
        resources = [{"resource_type": 2, "resource_name": "t", "configs": rows}]
        answer = await harness.controller.alter_configs(
            decoded(ApiKey.ALTER_CONFIGS, resources=resources, validate_only=False)
        )
        assert answer["responses"][0]["error_code"] == 0
        assert policy.requests[-1] == AlterConfigRequest("topic", "t", replaced)

    run(scenario())
