"""The recipe of docs/registry.md for Spark's own `from_avro`, on values of two schemas."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.docs.documentation import blocks
from support.pipeline.topics import Sent, send
from support.registry.registry_process import registry

from raftwerk.pipeline.topics import Topics

CARRIER = {"name": "carrier", "type": "string"}
SEATS = {"name": "seats", "type": "int", "default": 7}


def test_values_of_all_schemas_are_read_as_the_latest(spark: Any, cluster: Any, bootstrap: str, topic: str) -> None:
    (recipe,) = [block.text for block in blocks("registry.md") if "from_avro" in block.text]
    Topics(bootstrap, (topic,)).create(1, {})
    context = SerializationContext(topic, MessageField.VALUE)
    with registry(cluster, f"schemas-of-{topic}") as url:
        client = SchemaRegistryClient({"url": url})
        for fields, row in (([CARRIER], {"carrier": "UA"}), ([CARRIER, SEATS], {"carrier": "AA", "seats": 300})):
            serialize = AvroSerializer(client, json.dumps({"type": "record", "name": "Flight", "fields": fields}))
            send(bootstrap, topic, [Sent(0, None, serialize(row, context))])
        for documented, here in {
            "http://localhost:8081": url,
            "localhost:9092": bootstrap,
            '"flights"': f'"{topic}"',
            "flights-value": f"{topic}-value",
        }.items():
            recipe = recipe.replace(documented, here)
        names: dict[str, Any] = {"spark": spark}
        exec(compile(recipe, "registry.md", "exec"), names)
        assert sorted(tuple(row) for row in names["flights"].collect()) == [("AA", 300), ("UA", 7)]
        assert names["decoded"](names["records"].where("false"), f"{topic}-value").collect() == []
