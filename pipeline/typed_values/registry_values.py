"""Converts values that begin with the id of a schema to JSON, which Spark parses as it does other JSON.

Spark's workers ask the registry for the schemas, and keep them. A value that is of no such form, or not of its schema,
becomes null; a registry that does not answer fails the task.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...registry.data.frame import split_frame
from ...registry.data.json_conversion import conversion_of
from ...registry.data.readers import DataError, message_behind, protobuf_types, reader_of
from ...registry.data.schema_client import RegisteredSchema, SchemaClient, SchemaClientError, client_of
from ...registry.protobuf.schema import parse_protobuf
from ...registry.records import PROTOBUF
from ...runtime.http.client import without_login
from ..errors import PipelineError
from .spark_types import NoColumnsError, columns_of_schema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from pyspark.sql import Column

_NOT_FOUND = (404, 40403)
_LONG_TYPES = (2, 4)
"""FieldDescriptor.CPPTYPE_INT64 and CPPTYPE_UINT64."""
_WELL_KNOWN = "google.protobuf"
_LONG_WRAPPERS = (f"{_WELL_KNOWN}.Int64Value", f"{_WELL_KNOWN}.UInt64Value")
_TypedReader = Callable[[bytes], Any]


def registered_columns(url: str, topics: Sequence[str]) -> dict[str, str]:
    """The columns of the latest value schemas of these topics, which must be the same. Raises `PipelineError`."""
    found: dict[str, dict[str, str]] = {}
    client = client_of(url)
    for topic in topics:
        subject = f"{topic}-value"
        try:
            schema = asyncio.run(client.version(subject, None)).schema
            found[topic] = columns_of_schema(schema.schema_type, schema.text, schema.references)
        except SchemaClientError as error:
            raise PipelineError(f"{without_login(url)}: {error}.") from None
        except NoColumnsError as error:
            raise PipelineError(
                f"the latest schema of {subject} does not say the columns, since {error}: name them with --schema."
            ) from None
    first = topics[0]
    for topic, columns in found.items():
        if columns != found[first]:
            raise PipelineError(
                f"the values of {first} and {topic} have other columns: name those to take with --schema, or begin an "
                "output for each topic."
            )
    return found[first]


def json_texts(values: Column, url: str, known: Sequence[str] | None) -> Column:
    """The values as texts of JSON.

    `known` are the columns of the latest schema when the job started: a value whose schema has more of them fails the
    task. With None the job has columns of its own choice, and other fields of values are left out.
    """
    from pyspark.sql import functions as f

    names = None if known is None else tuple(known)

    def convert(value: bytes | None) -> str | None:
        return values_of(url, names).json_text(value)

    return f.udf(convert, "string", useArrow=True)(values)


@lru_cache(4)
def values_of(url: str, known: tuple[str, ...] | None) -> RegistryValues:
    """The converter of a registry's values, which a worker process keeps from task to task."""
    return RegistryValues(client_of(url), url, known)


class RegistryValues:
    """Converts values, and keeps what it has learned of their schemas."""

    def __init__(self, client: SchemaClient, url: str, known: Sequence[str] | None) -> None:
        self._client = client
        self._url = url
        self._known = None if known is None else {name.lower() for name in known}
        self._readers: dict[int, _TypedReader | None] = {}

    def json_text(self, value: bytes | None) -> str | None:
        """The value as JSON; None for what is of no schema. Raises `PipelineError` without the registry."""
        framed = None if value is None else split_frame(bytes(value))
        if framed is None:
            return None
        schema_id, data = framed
        reader = self._reader(schema_id)
        if reader is None:
            return None
        try:
            return json.dumps(reader(data))  # in ASCII: a text for Spark holds no half of a surrogate pair
        except DataError:
            return None

    def _reader(self, schema_id: int) -> _TypedReader | None:
        """The reader of a schema's values; None where the values cannot be read.

        A schema that the registry lacks is asked for again: an instance may be a moment behind the one that has it.
        """
        if schema_id not in self._readers:
            schema = schema_with_id(self._client, self._url, schema_id)
            if schema is None:
                return None
            self._readers[schema_id] = self._reader_of(schema)
        return self._readers[schema_id]

    def _reader_of(self, schema: RegisteredSchema) -> _TypedReader | None:
        self._check_columns(schema)
        try:
            if schema.schema_type == PROTOBUF:
                return _protobuf_reader(schema)
            return reader_of(schema.schema_type, schema.text, schema.references)
        except DataError:
            return None

    def _check_columns(self, schema: RegisteredSchema) -> None:
        if self._known is None:
            return
        try:
            columns = columns_of_schema(schema.schema_type, schema.text, schema.references)
        except NoColumnsError:
            return
        new = [name for name in columns if name.lower() not in self._known]
        if new:
            raise PipelineError(
                f"records of schema {schema.schema_id} have more fields ({', '.join(new)}): start the job again, and "
                "the table gets these columns."
            )


def schema_with_id(client: SchemaClient, url: str, schema_id: int) -> RegisteredSchema | None:
    """The schema with this id, None if there is none. Raises `PipelineError` where the registry at `url` cannot say."""
    try:
        return asyncio.run(client.schema(schema_id))
    except SchemaClientError as error:
        if error.code in _NOT_FOUND:
            return None
        raise PipelineError(f"{without_login(url)}: {error}; the batch is read again when the job starts.") from None


def _protobuf_reader(schema: RegisteredSchema) -> _TypedReader:
    """Fields without a value have their default. Long integers, which are texts in Protobuf's JSON, are numbers."""
    conversion = conversion_of(schema.schema_type, schema.text, schema.references)
    file = protobuf_types(parse_protobuf(schema.text, schema.references).files).file

    def read(data: bytes) -> Any:
        return _with_integers(conversion.to_value(data), message_behind(data, file)[0])

    return read


def _with_integers(value: Mapping[str, Any], kind: Descriptor) -> dict[str, Any]:
    return {one.name: _field(value[one.name], one) for one in kind.fields if one.name in value}


def _field(value: Any, one: FieldDescriptor) -> Any:
    message = one.message_type
    if message is not None and message.GetOptions().map_entry:
        values = message.fields_by_name["value"]
        return {key: _single(each, values) for key, each in value.items()}
    return [_single(each, one) for each in value] if one.is_repeated else _single(value, one)


def _single(value: Any, one: FieldDescriptor) -> Any:
    message = one.message_type
    if message is None or message.full_name in _LONG_WRAPPERS:
        return int(value) if isinstance(value, str) and (message is not None or one.cpp_type in _LONG_TYPES) else value
    return _with_integers(value, message) if isinstance(value, dict) and message.file.package != _WELL_KNOWN else value
