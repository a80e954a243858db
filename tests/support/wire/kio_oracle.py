"""kio's own reader and writer as the oracle for ours: every message, every version, arbitrary values."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import random
import types
import typing
import uuid
from typing import Any

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

_RANGES = {"b": (-(2**7), 2**7 - 1), "h": (-(2**15), 2**15 - 1), "i": (-(2**31), 2**31 - 1), "q": (-(2**63), 2**63 - 1)}
_RANGES |= {"H": (0, 2**16 - 1), "I": (0, 2**32 - 1)}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def all_entities(*kinds: str) -> list[tuple[str, int, str, Any]]:
    """(schema name, version, kind, dataclass) of all that kio has."""
    found = []
    for name, versions in schema_name_map.items():
        for version, entities in versions.items():
            for entity_type, path in entities.items():
                if entity_type.name in kinds:
                    module, _, class_name = path.partition(":")
                    found.append(
                        (name, version, entity_type.name, getattr(importlib.import_module(module), class_name))
                    )
    return found


def random_fields(schema: Any, entity: Any, rng: random.Random) -> dict[str, Any]:
    """Arbitrary values for all fields of one of our schemas; some tagged ones are left out.

    `entity` is kio's class of the same message, which knows the times and error codes among the integers.
    """
    theirs = {our_name(field): field for field in dataclasses.fields(entity)}
    values = {field.name: _random_value(field, theirs[field.name], rng) for field in schema.fields}
    for field in schema.tagged:
        if rng.random() < 0.6:
            # kio cannot write null for a tagged field, and Kafka never does.
            values[field.name] = _random_value(dataclasses.replace(field, nullable=False), theirs[field.name], rng)
        elif field.schema is not None:
            values[field.name] = field.default()
    return values


def _random_value(field: Any, theirs: Any, rng: random.Random) -> Any:
    if field.nullable and (field.array or field.fmt is None) and rng.random() < 0.3:
        return None
    if field.array:
        return [
            _random_item(field, theirs, rng)
            for _ in range(rng.choice((0, 1, 2, 3, 130) if field.schema is None else (0, 1, 2)))
        ]
    return _random_item(field, theirs, rng)


def _random_item(field: Any, theirs: Any, rng: random.Random) -> Any:
    if field.schema is not None:
        return random_fields(field.schema, nested_entity(theirs), rng)
    kafka_type = theirs.metadata["kafka_type"]
    if kafka_type == "error_code":
        return rng.choice(list(KioErrorCode)).value
    if kafka_type.startswith("timedelta"):
        return rng.choice((0, 1, -1, rng.randrange(-(2**31), 2**31)))
    if kafka_type == "datetime_i64":
        return rng.randrange(0, 2**42)
    if field.kind == "uuid":
        return None if rng.random() < 0.2 else uuid.UUID(int=rng.getrandbits(128) | 1)
    if field.kind == "string":
        return rng.choice(("", "a", "topic-1", "käse", "界" * 50, "x" * 200))
    if field.kind in ("bytes", "records"):
        return rng.randbytes(rng.choice((0, 1, 127, 300)))
    if field.fmt == "?":
        return rng.random() < 0.5
    if field.fmt == "d":
        return rng.random() * 1000
    low, high = _RANGES[field.fmt]
    return rng.choice((0, 1, low, high, rng.randint(low, high)))


def _bare(annotation: Any) -> Any:
    if isinstance(annotation, types.UnionType):
        (annotation,) = (arg for arg in typing.get_args(annotation) if arg is not types.NoneType)
    return annotation


def our_name(field: Any) -> str:
    """kio writes `type_` for what we call `type`."""
    return str(field.name).rstrip("_")


def to_kio(entity: Any, values: dict[str, Any]) -> Any:
    """kio's instance of `entity` with our values; left-out fields take kio's default."""
    arguments = {}
    for field in dataclasses.fields(entity):
        if our_name(field) in values:
            arguments[field.name] = _to_kio_value(field, values[our_name(field)])
    return entity(**arguments)


def _to_kio_value(field: Any, value: Any) -> Any:
    annotation = _bare(field.type)
    if value is None:
        return None
    if typing.get_origin(annotation) is tuple:
        inner = _bare(typing.get_args(annotation)[0])
        return tuple(_to_kio_item(inner, field.metadata.get("kafka_type"), item) for item in value)
    return _to_kio_item(annotation, field.metadata.get("kafka_type"), value)


def _to_kio_item(annotation: Any, kafka_type: str | None, value: Any) -> Any:
    if dataclasses.is_dataclass(annotation):
        return to_kio(annotation, value)
    if kafka_type == "error_code":
        return KioErrorCode(value)
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return datetime.timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        return _EPOCH + datetime.timedelta(milliseconds=value)
    return value


def from_kio(instance: Any) -> Any:
    """A kio instance in our terms: dicts, lists, plain ints."""
    if dataclasses.is_dataclass(instance):
        return {
            our_name(field): plain_value(field.metadata.get("kafka_type"), getattr(instance, field.name))
            for field in dataclasses.fields(instance)
        }
    return instance


def plain_value(kafka_type: str | None, value: Any) -> Any:
    if isinstance(value, tuple):
        return [plain_value(kafka_type, item) for item in value]
    if isinstance(value, uuid.UUID) and value.int == 0:
        return None
    if isinstance(value, KioErrorCode):
        return int(value)
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    if kafka_type == "datetime_i64":
        return -1 if value is None else round((value - _EPOCH) / datetime.timedelta(milliseconds=1))
    return from_kio(value)


def nested_entity(field: Any) -> Any:
    """The dataclass that a field of kio's holds, or an array of; None for a primitive."""
    annotation = _bare(field.type)
    if typing.get_origin(annotation) is tuple:
        annotation = _bare(typing.get_args(annotation)[0])
    return annotation if dataclasses.is_dataclass(annotation) else None


def kio_encode(entity: Any, instance: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(entity)(buffer, instance)
    return buffer.getvalue()


def kio_decode(entity: Any, data: bytes) -> Any:
    instance, size = entity_reader(entity)(data, 0)
    if size != len(data):
        raise ValueError(f"kio read {size} of {len(data)} bytes")
    return instance
