"""Values by the schemas of a registry, without Spark and without a registry."""

from __future__ import annotations

import json

import pytest

from raftwerk.pipeline.typed_values.registry_values import RegistryValues
from raftwerk.registry.data.frame import framed
from raftwerk.registry.data.schema_client import RegisteredSchema, SchemaClient, SchemaClientError


class LateRegistry(SchemaClient):
    """An instance of the registry that lacks a schema when it is asked for it the first so many times."""

    def __init__(self, times_missing: int = 0) -> None:
        self.times_missing = times_missing
        self.asked = 0

    async def schema(self, schema_id: int) -> RegisteredSchema:
        self.asked += 1
        if self.asked <= self.times_missing:
            raise SchemaClientError(f"the registry has no schema {schema_id}", 40403)
        return RegisteredSchema(schema_id, "JSON", '{"type": "object"}', ())


def test_a_schema_that_was_not_there_is_asked_for_again() -> None:
    """An instance of the registry may not have read yet what another one has registered."""
    client = LateRegistry(times_missing=1)
    values = RegistryValues(client, "http://registry", None)
    texts = [values.json_text(framed(7, b'{"a": 1}')) for _ in range(3)]
    assert texts == [None, '{"a": 1}', '{"a": 1}']
    assert client.asked == 2, "a schema that was found is kept"


@pytest.mark.parametrize("text", ['{"a": "\\ud800"}', '{"\\udfff": 1}', '{"a": "Zürich \U0001f600"}'])
def test_values_are_texts_that_spark_takes(text: str) -> None:
    """Half a surrogate pair, which JSON can write and UTF-8 cannot, ended the task."""
    values = RegistryValues(LateRegistry(), "http://registry", None)
    found = values.json_text(framed(7, text.encode()))
    assert found is not None and found.encode()
    assert json.loads(found) == json.loads(text)
