"""The schemas of keys and values: asked for at a registry, or registered there, and what they make of a value.

To parse a schema may take a second, and so may a long value, so both are done in threads of their own. What was asked
for is remembered for a while, within a limit of characters, since clients decide which schemas these are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ...registry.data.frame import framed, split_frame
from ...registry.data.readers import DataError
from ...registry.data.schema_client import RegisteredSchema, SchemaClient
from ...registry.references import Referenced
from ..errors import BAD_REQUEST, RestError
from .subject_names import TOPIC_NAME, subject_name

if TYPE_CHECKING:
    from ...registry.data.json_conversion import JsonConversion

T = TypeVar("T")

_THREADS = 4
_REMEMBERED_S = 60.0
_LATEST_REMEMBERED_S = 2.0
_CHARACTERS_MAX = 16 << 20
_ENTRIES_MAX = 500
_CHARACTERS_OF_ENTRY = 1000


@dataclass(frozen=True, slots=True)
class WantedSchema:
    """Which schema a key or a value has: by id, by version, by its text with its type, or else the latest one.

    The subject is named or follows from the strategy, except for a schema that is wanted by its id without a version.
    """

    schema_id: int | None = None
    version: int | None = None
    schema_type: str | None = None
    text: str | None = None
    subject: str | None = None
    strategy: str = TOPIC_NAME


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """A schema of the registry, and how values are converted by it. Without a subject it was asked for by its id."""

    schema: RegisteredSchema
    conversion: JsonConversion
    subject: str | None = None
    version: int | None = None

    def serialized(self, value: Any) -> bytes | None:
        """The value behind the frame of its schema; None for null. Raises `DataError`. It may take a second."""
        return None if value is None else framed(self.schema.schema_id, self.conversion.to_bytes(value))


class RecordSchemas:
    """Finds schemas and converts by them. An async context manager, which ends its threads."""

    def __init__(self, client: SchemaClient) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(_THREADS, "rest-schemas")
        self._known: dict[Hashable, tuple[float, RecordSchema]] = {}
        self._characters = 0

    async def __aenter__(self) -> RecordSchemas:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, work: Callable[[], T]) -> T:
        """Do what may take a second in a thread."""
        return await self._loop.run_in_executor(self._threads, work)

    async def by_id(self, schema_id: int) -> RecordSchema:
        """The schema of this id. Raises `SchemaClientError`, and `DataError` for one that is none."""

        async def find() -> RecordSchema:
            return await self._converting(await self._client.schema(schema_id))

        return await self._remembered(schema_id, find)

    async def find(self, wanted: WantedSchema, topic: str, *, is_key: bool) -> RecordSchema:
        """The schema with its subject and version; one that is given as a text is registered.

        Raises `SchemaClientError`, `DataError` for a schema that is none, and `RestError` for a subject without a name.
        """

        async def find() -> RecordSchema:
            if wanted.schema_id is not None:
                return await self._of_subject(await self.by_id(wanted.schema_id), wanted, topic, is_key)
            if wanted.text is not None:
                return await self._registered(wanted, wanted.text, topic, is_key)
            subject = wanted.subject or subject_name(wanted.strategy, topic, None, is_key=is_key)
            found = await self._client.version(subject, wanted.version)
            return await self._converting(found.schema, subject, found.version)

        return await self._remembered((wanted, topic, is_key), find, is_latest=wanted == _latest(wanted))

    async def _of_subject(self, found: RecordSchema, wanted: WantedSchema, topic: str, is_key: bool) -> RecordSchema:
        name = found.conversion.record_name
        subject = wanted.subject or subject_name(wanted.strategy, topic, name, is_key=is_key)
        version = await self._client.version_of(subject, found.schema.schema_id)
        return RecordSchema(found.schema, found.conversion, subject, version)

    async def _registered(self, wanted: WantedSchema, text: str, topic: str, is_key: bool) -> RecordSchema:
        if wanted.schema_type is None:
            raise RestError(BAD_REQUEST, "A schema has its type beside it: AVRO, JSONSCHEMA or PROTOBUF")
        schema_type = wanted.schema_type
        conversion = await self.run(lambda: _conversion(schema_type, text))
        subject = wanted.subject or subject_name(wanted.strategy, topic, conversion.record_name, is_key=is_key)
        found = await self._client.register(subject, schema_type, text)
        return RecordSchema(found.schema, conversion, subject, found.version)

    async def _converting(
        self, schema: RegisteredSchema, subject: str | None = None, version: int | None = None
    ) -> RecordSchema:
        conversion = await self.run(lambda: _conversion(schema.schema_type, schema.text, schema.references))
        return RecordSchema(schema, conversion, subject, version)

    async def _remembered(self, key: Hashable, find: Callable[[], Any], *, is_latest: bool = False) -> RecordSchema:
        known = self._known.get(key)
        if known is not None and self._loop.time() < known[0]:
            return known[1]
        found: RecordSchema = await find()
        self._forget(key)
        self._known[key] = (self._loop.time() + (_LATEST_REMEMBERED_S if is_latest else _REMEMBERED_S), found)
        self._characters += _cost(found)
        while len(self._known) > 1 and (self._characters > _CHARACTERS_MAX or len(self._known) > _ENTRIES_MAX):
            self._forget(next(iter(self._known)))
        return found

    def _forget(self, key: Hashable) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            self._characters -= _cost(known[1])

    def value_of(self, data: bytes, schema_type: str) -> Any:
        """The value of data by the schema in its frame, asked for from a thread that may wait.

        Raises `DataError` for data without a frame or of another type, and `SchemaClientError`.
        """
        frame = split_frame(data)
        if frame is None:
            raise DataError("it does not begin with the id of a schema")
        schema_id, rest = frame
        found = asyncio.run_coroutine_threadsafe(self.by_id(schema_id), self._loop).result()
        if found.schema.schema_type != schema_type:
            raise DataError(f"schema {schema_id} is of the type {found.schema.schema_type}")
        return found.conversion.to_value(rest)


def _conversion(schema_type: str, text: str, references: Sequence[Referenced] = ()) -> JsonConversion:
    from ...registry.data.json_conversion import conversion_of  # its imports take memory, and an extra's packages

    return conversion_of(schema_type, text, references)


def _latest(wanted: WantedSchema) -> WantedSchema:
    return WantedSchema(subject=wanted.subject, strategy=wanted.strategy)


def _cost(found: RecordSchema) -> int:
    return found.schema.size + _CHARACTERS_OF_ENTRY
