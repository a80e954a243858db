"""Draws requests from the schemas of Kafka's messages (`wire/message_schemas`), and damages some of them.

Half of the requests are well formed. In the others, lengths lie, nulls stand where none is allowed, tagged fields are
unknown or cut; and some of either kind are mutated as bytes: flipped, cut, doubled, overwritten with limits.
"""

from __future__ import annotations

import random
import struct
from functools import lru_cache

from ...wire.api_keys import ApiKey
from ...wire.frames import is_flexible, write_uvarint
from ...wire.schemas import Field, Schema, load_api_schema
from .damaged_batches import draw_batch
from .drawn_values import KnownNames, ValueDrawer

_LIES_SHARE, _LIE_PROBABILITY, _MUTATED_SHARE = 0.35, 0.06, 0.25
_BODY_BYTES_MAX = 1 << 20
_LIMIT_BYTES = tuple(
    struct.pack(">i", number) for number in (-1, -2, 2**31 - 1, -(2**31), 65_536, 100_000_000)
) + tuple(struct.pack(">q", number) for number in (2**63 - 1, -(2**63), 2**62))


@lru_cache(maxsize=512)
def _schema(api: ApiKey, version: int) -> Schema:
    return load_api_schema(api, version, "request")


def is_drawable(api: ApiKey, version: int) -> bool:
    """Whether there is a schema to draw from: ApiVersions names Produce 0 to 2, which are not served, too."""
    try:
        _schema(api, version)
    except ValueError:
        return False
    return True


class RequestDrawer:
    """Draws requests from one random generator: the same seed gives the same requests."""

    def __init__(self, rng: random.Random, known: KnownNames) -> None:
        self._rng = rng
        self._values = ValueDrawer(rng, known)
        self._lie_probability = 0.0
        self._api = ApiKey.API_VERSIONS

    def frame(self, api: ApiKey, version: int, correlation_id: int) -> tuple[bytes, bool]:
        """A whole frame with its size, and whether it is well formed."""
        rng = self._rng
        self._api = api
        is_well_formed = rng.random() > _LIES_SHARE
        self._lie_probability = 0.0 if is_well_formed else _LIE_PROBABILITY
        body = bytearray()
        self._struct(body, _schema(api, version))
        if rng.random() < _MUTATED_SHARE:
            is_well_formed = False
            body = mutate(rng, body)
        client_id = rng.choice((b"fuzz", b"fuzz", b"", b"c" * 300))
        header = struct.pack(">hhih", api, version, correlation_id, len(client_id)) + client_id
        if is_flexible(api, version):
            header += b"\0"
        if rng.random() < 0.02:
            is_well_formed, header = False, bytes(mutate(rng, bytearray(header)))
        return struct.pack(">i", len(header) + len(body)) + header + body, is_well_formed

    def _lies(self) -> bool:
        return self._lie_probability > 0 and self._rng.random() < self._lie_probability

    def _struct(self, out: bytearray, schema: Schema) -> None:
        for field in schema.fields:
            self._field(out, schema, field)
        if schema.flexible:
            self._tags(out, schema)

    def _field(self, out: bytearray, schema: Schema, field: Field) -> None:
        if not field.array:
            self._value(out, schema, field)
            return
        if self._lies() or (field.nullable and self._rng.random() < 0.15):
            self._length(out, -1, schema.flexible, wide=True)
            return
        count = self._rng.choice((0, 1, 1, 1, 2, 3, 20))
        if len(out) > _BODY_BYTES_MAX:
            count = 0
        self._length(out, count, schema.flexible, wide=True)
        for _ in range(count):
            self._value(out, schema, field)

    def _value(self, out: bytearray, schema: Schema, field: Field) -> None:
        nullable = field.nullable and not field.array
        if field.schema is not None:
            if nullable:
                is_null = self._rng.random() < 0.3
                out.append(0xFF if is_null else 1)
                if is_null:
                    return
            self._struct(out, field.schema)
        elif field.fmt is not None:
            out += struct.pack(">" + field.fmt, self._values.number(field.name, field.fmt, in_array=field.array))
        elif field.kind == "uuid":
            out += self._values.uuid(self._api)
        elif self._lies() or (nullable and self._rng.random() < 0.2):
            self._length(out, -1, schema.flexible, wide=field.kind != "string")
        else:
            raw = self._bytes(schema, field)
            self._length(out, len(raw), schema.flexible, wide=field.kind != "string")
            out += raw

    def _bytes(self, schema: Schema, field: Field) -> bytes:
        if field.kind == "string":
            return self._values.text(self._api, schema.name, field.name).encode()
        return draw_batch(self._rng) if field.kind == "records" else self._values.raw()

    def _length(self, out: bytearray, length: int, flexible: bool, *, wide: bool) -> None:
        if self._lies():
            length = self._rng.choice((length + 1, length - 1, -2, 2**31 - 1, 70_000, 2**15 - 1, 10_000_000))
        if flexible:
            write_uvarint(out, (length + 1) & 0xFFFFFFFF)
        elif wide:
            out += struct.pack(">i", length)
        else:
            out += struct.pack(">H", length & 0xFFFF)

    def _tags(self, out: bytearray, schema: Schema) -> None:
        present = [field for field in schema.tagged if self._rng.random() < 0.5]
        fields: list[tuple[int, bytes]] = []
        for field in sorted(present, key=lambda field: field.tag or 0):
            content = bytearray()
            self._field(content, schema, field)
            fields.append((field.tag or 0, bytes(content)))
        if self._rng.random() < 0.1:
            fields.append((self._rng.choice((77, 2**31, 2**32 - 1)), self._values.raw()))
        self._length(out, len(fields) - 1, True, wide=True)
        for tag, content_bytes in fields:
            write_uvarint(out, tag)
            self._length(out, len(content_bytes) - 1, True, wide=True)
            out += content_bytes


def mutate(rng: random.Random, data: bytearray) -> bytearray:
    """Damage bytes in one to four places."""
    for _ in range(rng.randint(1, 4)):
        if not data:
            return bytearray(rng.randbytes(8))
        at = rng.randrange(len(data))
        kind = rng.randrange(5)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = data[at : at + rng.randint(1, 64)]
        elif kind == 3:
            limit = rng.choice(_LIMIT_BYTES)
            data[at : at + len(limit)] = limit
        else:
            del data[at : at + rng.randint(1, 8)]
    return data
