"""The formats that need schemas, by the names that they have in HTTP and in the registry."""

from __future__ import annotations

from ...registry.data.schema_client import SchemaClientError
from ...registry.records import AVRO, JSON, PROTOBUF
from ..errors import AUTHORIZATION_FAILED, INVALID_SCHEMA, RestError

SCHEMA_TYPES = {"avro": AVRO, "jsonschema": JSON, "protobuf": PROTOBUF}
"""The types of schemas by the formats that need them."""
NO_REGISTRY = "this proxy has no schema registry: start it with --registry URL"
_NO_RIGHT = (403, AUTHORIZATION_FAILED)
_INVALID_SCHEMA = (422, 42201)


def registry_refusal(error: SchemaClientError, code: int, what: str) -> RestError:
    """The error for one of the registry: that a right is missing, that a schema is none, or else this code."""
    if error.code in _NO_RIGHT:
        return RestError(AUTHORIZATION_FAILED, f"{what}: {error}")
    if error.code in _INVALID_SCHEMA:
        return RestError(INVALID_SCHEMA, f"Invalid schema: {error}")
    return RestError(code, f"{what}: {error}")
