"""Topics, their settings, and single records that are produced."""

from __future__ import annotations

import asyncio
from typing import Any

from ...cluster.client.admin_client import AdminClient, NewTopic
from ...cluster.client.client_errors import RefusedError
from ...cluster.client.cluster_client import ClusterClient
from ...cluster.client.consumer import EARLIEST, LATEST, Consumer
from ...cluster.client.producer import Producer
from ...cluster.command_line.plural import counted
from ..errors import RequestRefusedError
from ..fields import Fields, number, text
from ..logins.rights import needs_right

_TOPIC_RESOURCE = 2
_SEND_TIMEOUT_S = 10.0


class TopicActions:
    """Shows and changes topics. Every method raises `ClientError` where the cluster refuses."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._admin = AdminClient(client)

    async def topic(self, name: str) -> dict[str, Any]:
        """A topic with its settings and the offsets of its partitions."""
        view = (await self._client.metadata([name])).topic(name)
        consumer = Consumer(self._client, name)
        await consumer.start(at=0)
        led = [one.partition for one in view.partitions if one.leader >= 0]
        (starts, _), (ends, _) = await asyncio.gather(
            consumer.known_offsets(EARLIEST, led), consumer.known_offsets(LATEST, led)
        )
        configs, why_no_configs = await self._configs(name)
        return {
            "name": name,
            "topic_id": str(view.topic_id),
            "internal": view.internal,
            "partitions": [
                {
                    "partition": one.partition,
                    "leader": one.leader,
                    "leader_epoch": one.leader_epoch,
                    "replicas": one.replicas,
                    "isr": one.isr,
                    "start_offset": starts.get(one.partition),
                    "end_offset": ends.get(one.partition),
                }
                for one in view.partitions
            ],
            "configs": configs,
            "why_no_configs": why_no_configs,
        }

    async def _configs(self, name: str) -> tuple[list[dict[str, Any]], str | None]:
        """The settings of a topic; why there are none for somebody who may see the topic and not its settings."""
        try:
            found = await self._admin.describe_configs(_TOPIC_RESOURCE, name, everything=True)
            own = {one.name for one in await self._admin.describe_configs(_TOPIC_RESOURCE, name)}
        except RefusedError as error:
            if error.missing_right is None:
                raise
            return [], needs_right(error.missing_right)
        return [
            {"name": one.name, "value": one.value, "is_own": one.name in own, "help": one.documentation}
            for one in found
        ], None

    async def create_topic(self, fields: Fields) -> dict[str, Any]:
        """Create a topic from `name`, `partitions`, `replication_factor` and `configs`."""
        name, configs = text(fields, "name"), fields.get("configs") or {}
        if not isinstance(configs, dict):
            raise RequestRefusedError(400, "configs is an object of names and values")
        count, factor = number(fields, "partitions", -1), number(fields, "replication_factor", -1)
        values = {str(key): str(value) for key, value in configs.items()}
        await self._admin.create_topic(NewTopic(name, count, factor, values))
        return {"done": f"created topic {name}"}

    async def delete_topic(self, name: str) -> dict[str, Any]:
        """Delete a topic and its records."""
        await self._admin.delete_topic(name)
        return {"done": f"deleted topic {name}"}

    async def grow_topic(self, name: str, fields: Fields) -> dict[str, Any]:
        """Add partitions to a topic until it has `count`."""
        count = number(fields, "count")
        await self._admin.create_partitions(name, count)
        return {"done": f"topic {name} has {counted(count, 'partition')}"}

    async def alter_topic(self, name: str, fields: Fields) -> dict[str, Any]:
        """Set the settings in `set`, and reset those in `reset` to their defaults."""
        values, reset = fields.get("set") or {}, fields.get("reset") or []
        if not isinstance(values, dict) or not isinstance(reset, list) or not (values or reset):
            raise RequestRefusedError(400, "give settings to set, an object, or to reset, a list of names")
        changed = {str(key): str(value) for key, value in values.items()}
        await self._admin.alter_configs(_TOPIC_RESOURCE, name, changed, [str(one) for one in reset])
        return {"done": f"changed {', '.join([*changed, *map(str, reset)])} of topic {name}"}

    async def produce(self, topic: str, fields: Fields) -> dict[str, Any]:
        """Send one record of `key`, `value`, `headers` and, if given, `partition`; it is committed on return."""
        key, value, partition = fields.get("key"), fields.get("value"), fields.get("partition")
        headers = fields.get("headers") or {}
        if not all(one is None or isinstance(one, str) for one in (key, value)) or not isinstance(headers, dict):
            raise RequestRefusedError(400, "key and value are texts or null, headers an object")
        producer = Producer(self._client, topic, timeout_s=_SEND_TIMEOUT_S)
        await producer.start()
        if partition is not None:
            partition = number(fields, "partition")
            producer.check_partition(partition)
        pair = (None if key is None else key.encode(), None if value is None else value.encode())
        named = [(str(name), str(value).encode()) for name, value in headers.items()]
        (acked,) = await producer.send([pair], partition=partition, headers=named)
        return {"partition": acked.partition, "offset": acked.base_offset}
