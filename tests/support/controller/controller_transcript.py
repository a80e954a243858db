"""Transcripts: requests, their records, their responses. Run this file to write the responses again.

Lines that start with `>` are requests; what follows each is produced by the controller's decisions.
"""

from __future__ import annotations

import asyncio
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import UUID

from support.controller.controller_harness import Harness, decoded, run

from raftwerk.controller.metadata.metadata_records import Record
from raftwerk.controller.settings import ControllerSettings
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

FOLDER = Path(__file__).parents[2] / "controller" / "transcripts"


def transcripts() -> list[Path]:
    return sorted(FOLDER.glob("*.txt"))


def run_transcript(text: str) -> str:
    return run(_play(text))


async def _play(text: str) -> str:
    stage = _Stage()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            lines += ["", line]
        elif line.startswith(">"):
            lines += ["", line, *await stage.play(line[1:].split())]
    return "\n".join(lines).replace("\n\n\n", "\n\n").lstrip("\n") + "\n"


class _Stage:
    def __init__(self) -> None:
        defaults = {"min.insync.replicas": "2"}
        self.harness = Harness(ControllerSettings(1, default_replication_factor=3, topic_defaults=defaults))
        self.topic_names: dict[UUID, str] = {}

    async def play(self, words: list[str]) -> list[str]:
        options = {key: value for key, _, value in (word.partition("=") for word in words[1:])}
        names = [word for word in words[1:] if "=" not in word]
        await asyncio.sleep(0)
        before = len(self.harness.quorum.records())
        answer = await getattr(self, "on_" + words[0].replace("-", "_"))(names, options)
        await asyncio.sleep(0)
        records = [record for _, record in self.harness.quorum.records()[before:]]
        for topic in self.harness.image.topics_by_id.values():
            self.topic_names[topic.topic_id] = topic.name
        return [*(f"  {self.render(record)}" for record in records), *(f"< {line}" for line in answer)]

    def render(self, record: Record) -> str:
        shown = []
        for field in fields(record):
            value = getattr(record, field.name)
            if field.name in ("listeners", "features", "log_dirs", "incarnation_id") or value == field.default:
                continue
            shown.append(f"{field.name}={self.value(value)}")
        return f"{type(record).__name__.removesuffix('Record')} {' '.join(shown)}"

    def value(self, value: Any) -> str:
        if isinstance(value, UUID):
            return self.topic_names.get(value, "new")
        if isinstance(value, tuple):
            return "[" + ",".join(map(str, value)) + "]"
        return str(value)

    def error(self, response: Any) -> str:
        message = response.get("error_message")
        return ErrorCode(response["error_code"]).name + (f": {message}" if message else "")

    async def on_register(self, names: list[str], options: dict[str, str]) -> list[str]:
        broker_id, incarnation = int(names[0]), int(options.get("incarnation", "1"))
        more: dict[str, Any] = {"rack": options.get("rack")}
        if "cluster" in options:
            more["cluster_id"] = options["cluster"]
        if "previous_epoch" in options:
            more["previous_broker_epoch"] = int(options["previous_epoch"])
        if "host" in options:
            more["listeners"] = [{"name": "PLAINTEXT", "host": options["host"], "port": 9092, "security_protocol": 0}]
        response = await self.harness.controller.register_broker(
            self.harness.registration(broker_id, incarnation, **more)
        )
        return [f"{self.error(response)} broker_epoch={response.get('broker_epoch', -1)}"]

    async def on_heartbeat(self, names: list[str], options: dict[str, str]) -> list[str]:
        more: dict[str, Any] = {"want_fence": "want-fence" in names, "want_shut_down": "want-shut-down" in names}
        if "epoch" in options:
            more["broker_epoch"] = int(options["epoch"])
        if "offset" in options:
            more["current_metadata_offset"] = int(options["offset"])
        response = await self.harness.controller.broker_heartbeat(self.harness.heartbeat(int(names[0]), **more))
        told = [name for name in ("is_caught_up", "is_fenced", "should_shut_down") if response.get(name)]
        return [" ".join([self.error(response), *told])]

    async def on_disconnect(self, names: list[str], options: dict[str, str]) -> list[str]:
        self.harness.controller.on_broker_disconnected(int(names[0]))
        return []

    async def on_wait(self, names: list[str], options: dict[str, str]) -> list[str]:
        await asyncio.sleep(float(names[0].removesuffix("s")))
        return []

    async def on_create(self, names: list[str], options: dict[str, str]) -> list[str]:
        rows = [r for r in options.get("replicas", "").split("/") if r]
        assignments = [
            {"partition_index": i, "broker_ids": [int(b) for b in row.split(",") if b != "none"]}
            for i, row in enumerate(rows)
        ]
        known = ("replicas", "partitions", "factor")
        topic = {
            "num_partitions": int(options.get("partitions", "-1")),
            "replication_factor": int(options.get("factor", "-1")),
            "assignments": assignments,
            "configs": [{"name": k, "value": v} for k, v in options.items() if k not in known and v],
        }
        request = decoded(
            ApiKey.CREATE_TOPICS,
            topics=[{"name": name, **topic} for name in names if name != "validate-only"],
            validate_only="validate-only" in names,
        )
        response = await self.harness.controller.create_topics(request)
        return [f"{row['name'][:40]} {self.error(row)}" for row in response["topics"]]

    async def on_delete(self, names: list[str], options: dict[str, str]) -> list[str]:
        response = await self.harness.controller.delete_topics(
            decoded(ApiKey.DELETE_TOPICS, version=5, topic_names=names)
        )
        return [f"{row['name']} {self.error(row)}" for row in response["responses"]]

    async def on_grow(self, names: list[str], options: dict[str, str]) -> list[str]:
        rows = [[int(b) for b in row.split(",")] for row in options.get("replicas", "").split("/") if row]
        assignments = [{"broker_ids": row} for row in rows] or None
        topic = {"name": names[0], "count": int(options["count"]), "assignments": assignments}
        response = await self.harness.controller.create_partitions(
            decoded(ApiKey.CREATE_PARTITIONS, topics=[topic], validate_only=False)
        )
        return [f"{row['name']} {self.error(row)}" for row in response["results"]]

    async def on_alter(self, names: list[str], options: dict[str, str]) -> list[str]:
        """alter <broker> <topic>-<partition> isr=1,2@epoch leader_epoch=+n partition_epoch=+n"""
        broker_id, (topic, _, index) = int(names[0]), names[1].rpartition("-")
        known = self.harness.image.topics_by_name.get(topic)
        partition = known.partitions.get(int(index)) if known else None
        row = {
            "partition_index": int(index),
            "leader_epoch": (partition.leader_epoch if partition else 0) + int(options.get("leader_epoch", "0")),
            "partition_epoch": (partition.partition_epoch if partition else 0)
            + int(options.get("partition_epoch", "0")),
            "new_isr_with_epochs": [self.member(word) for word in options["isr"].split(",")],
            "leader_recovery_state": int(options.get("recovery", "0")),
        }
        topic_id = known.topic_id if known else UUID(int=99)
        epoch = int(options.get("epoch", self.harness.image.brokers[broker_id].epoch))
        request = decoded(
            ApiKey.ALTER_PARTITION,
            broker_id=broker_id,
            broker_epoch=epoch,
            topics=[{"topic_id": topic_id, "partitions": [row]}],
        )
        response = await self.harness.controller.alter_partition(request)
        if response["error_code"]:
            return [self.error(response)]
        answer = response["topics"][0]["partitions"][0]
        if answer["error_code"]:
            return [f"{names[1]} {self.error(answer)}"]
        state = " ".join(f"{k}={answer[k]}" for k in ("leader_id", "leader_epoch", "isr", "partition_epoch"))
        return [f"{names[1]} NONE {state}"]

    def member(self, word: str) -> dict[str, int]:
        broker_id, _, epoch = word.partition("@")
        broker = self.harness.image.brokers.get(int(broker_id))
        return {"broker_id": int(broker_id), "broker_epoch": int(epoch) if epoch else broker.epoch if broker else -1}

    async def on_elect(self, names: list[str], options: dict[str, str]) -> list[str]:
        topic, _, index = names[1].rpartition("-")
        request = decoded(
            ApiKey.ELECT_LEADERS,
            election_type={"preferred": 0, "unclean": 1}[names[0]],
            topic_partitions=[{"topic": topic, "partitions": [int(index)]}],
        )
        response = await self.harness.controller.elect_leaders(request)
        rows = response["replica_election_results"][0]["partition_result"]
        return [f"{names[1]} {self.error(row)}" for row in rows]

    async def on_configure(self, names: list[str], options: dict[str, str]) -> list[str]:
        configs = [
            {"name": k, "config_operation": 0 if v else 1, "value": v or None}
            for k, v in options.items()
            if k != names[0]
        ]
        resource = {"resource_type": 2, "resource_name": names[0], "configs": configs}
        request = decoded(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False)
        response = await self.harness.controller.incremental_alter_configs(request)
        return [f"{row['resource_name']} {self.error(row)}" for row in response["responses"]]

    async def on_producer_ids(self, names: list[str], options: dict[str, str]) -> list[str]:
        epoch = int(options.get("epoch", self.harness.image.brokers[int(names[0])].epoch))
        response = await self.harness.controller.allocate_producer_ids(
            decoded(ApiKey.ALLOCATE_PRODUCER_IDS, broker_id=int(names[0]), broker_epoch=epoch)
        )
        return [f"{self.error(response)} {response.get('producer_id_start')}+{response.get('producer_id_len')}"]

    async def on_unregister(self, names: list[str], options: dict[str, str]) -> list[str]:
        return [
            self.error(
                await self.harness.controller.unregister_broker(
                    decoded(ApiKey.UNREGISTER_BROKER, broker_id=int(names[0]))
                )
            )
        ]

    async def on_show(self, names: list[str], options: dict[str, str]) -> list[str]:
        lines = []
        for index, p in self.harness.image.topics_by_name[names[0]].partitions.items():
            lines.append(
                f"{names[0]}-{index} leader={p.leader} epoch={p.leader_epoch} isr={self.value(p.isr)} "
                f"elr={self.value(p.elr)} last_known={self.value(p.last_known_elr)} partition_epoch={p.partition_epoch}"
            )
        return lines
