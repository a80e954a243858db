from __future__ import annotations

import random
from typing import Any

import kio_oracle as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftwerk.wire import codec, frames, schemas
from raftwerk.wire.apis import ApiKey

API_ENTITIES = oracle.all_entities("request", "response")
DATA_ENTITIES = oracle.all_entities("data")
ALL_ENTITIES = API_ENTITIES + DATA_ENTITIES


def our_schema(name: str, version: int, kind: str) -> schemas.Schema:
    if kind == "data":
        return schemas.load_data_schema(name, version)
    return schemas.load_api_schema(ApiKey[name.upper()], version, kind)


def our_encode(name: str, version: int, kind: str, fields: dict[str, Any]) -> bytes:
    if kind == "data":
        return codec.encode_data(name, version, fields)
    encode = codec.encode_request if kind == "request" else codec.encode_response
    return encode(ApiKey[name.upper()], version, fields)


def our_decode(name: str, version: int, kind: str, data: bytes) -> codec.Struct:
    if kind == "data":
        return codec.decode_data(name, version, memoryview(data))
    decode = codec.decode_request if kind == "request" else codec.decode_response
    return decode(ApiKey[name.upper()], version, memoryview(data))


def check_against_kio(name: str, version: int, kind: str, entity: Any, rng: random.Random) -> None:
    fields = oracle.random_fields(our_schema(name, version, kind), rng)
    instance = oracle.to_kio(entity, fields)
    theirs = oracle.kio_encode(entity, instance)
    assert our_encode(name, version, kind, fields) == theirs
    decoded = our_decode(name, version, kind, theirs)
    assert decoded == oracle.from_kio(oracle.kio_decode(entity, theirs))
    assert our_encode(name, version, kind, decoded) == theirs


@pytest.mark.parametrize("index", range(0, len(ALL_ENTITIES), 40))
def test_every_message_of_every_version_agrees_with_kio(index: int) -> None:
    for name, version, kind, entity in ALL_ENTITIES[index : index + 40]:
        for seed in range(4):
            check_against_kio(name, version, kind, entity, random.Random(f"{name}-{version}-{kind}-{seed}"))


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(ALL_ENTITIES), st.randoms(use_true_random=False))
def test_arbitrary_values_agree_with_kio(which: tuple[str, int, str, Any], rng: random.Random) -> None:
    check_against_kio(*which, rng)


def test_header_versions_agree_with_kio() -> None:
    for name, version, kind, entity in API_ENTITIES:
        key = ApiKey[name.upper()]
        ours = frames.request_header_version if kind == "request" else frames.response_header_version
        assert ours(key, version) == entity.__header_schema__.__version__, (name, version, kind)
        assert frames.is_flexible(key, version) == entity.__flexible__, (name, version, kind)


def test_no_field_hides_a_method_of_struct() -> None:
    names = {name for name in dir(codec.Struct) if not name.startswith("_")}
    assert names == {"get", "to_dict"}

    def check(schema: schemas.Schema) -> None:
        for field in (*schema.fields, *schema.tagged):
            assert field.name not in names
            if field.schema is not None:
                check(field.schema)

    for name, version, kind, _ in ALL_ENTITIES:
        check(our_schema(name, version, kind))
