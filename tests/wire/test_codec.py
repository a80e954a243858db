from __future__ import annotations

import copy
import dataclasses
import random
import struct
import subprocess
import sys
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.wire import kio_oracle as oracle

from raftwerk.wire import codec, frames, schemas
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import WireFormatError
from raftwerk.wire.types import STRING_BYTES_MAX

API_ENTITIES = oracle.all_entities("request", "response")
DATA_ENTITIES = oracle.all_entities("data")
ALL_ENTITIES = API_ENTITIES + DATA_ENTITIES


def our_schema(name: str, version: int, kind: str) -> schemas.Schema:
    if kind == "data":
        return schemas.load_data_schema(name, version)
    return schemas.load_api_schema(ApiKey[name.upper()], version, kind)


def our_encode(name: str, version: int, kind: str, fields: Mapping[str, Any] | codec.Struct) -> bytes:
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
    fields = oracle.random_fields(our_schema(name, version, kind), entity, rng)
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


@settings(max_examples=200)
@given(st.sampled_from(ALL_ENTITIES), st.randoms(use_true_random=False))
def test_arbitrary_values_agree_with_kio(which: tuple[str, int, str, Any], rng: random.Random) -> None:
    check_against_kio(*which, rng)


def test_header_versions_agree_with_kio() -> None:
    for name, version, kind, entity in API_ENTITIES:
        key = ApiKey[name.upper()]
        flexible = frames.is_flexible(key, version)
        assert flexible == entity.__flexible__, (name, version, kind)
        ours = 1 + flexible if kind == "request" else frames.response_header_version(key, version)
        assert ours == entity.__header_schema__.__version__, (name, version, kind)


def test_defaults_agree_with_kio() -> None:
    def check(schema: schemas.Schema, entity: Any) -> None:
        ours = {field.name: field for field in (*schema.fields, *schema.tagged)}
        theirs = {oracle.our_name(field): field for field in dataclasses.fields(entity)}
        assert list(ours) == [n for n in theirs if "tag" not in theirs[n].metadata] + [f.name for f in schema.tagged]
        for name, field in theirs.items():
            if field.default is not dataclasses.MISSING:
                kafka_type = field.metadata.get("kafka_type")
                assert ours[name].default() == oracle.plain_value(kafka_type, field.default), (entity, name)
            nested = oracle.nested_entity(field)
            assert (nested is None) == (ours[name].schema is None)
            schema_inside = ours[name].schema
            if schema_inside is not None:
                check(schema_inside, nested)

    for name, version, kind, entity in ALL_ENTITIES:
        check(our_schema(name, version, kind), entity)


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


@pytest.mark.parametrize("index", range(0, len(ALL_ENTITIES), 80))
def test_damaged_messages_raise_only_wire_format_error(index: int) -> None:
    for name, version, kind, entity in ALL_ENTITIES[index : index + 80]:
        rng = random.Random(f"{name}-{version}-{kind}")
        fields = oracle.random_fields(our_schema(name, version, kind), entity, rng)
        body = our_encode(name, version, kind, fields)[:2000]
        for _ in range(25):
            damaged = bytearray(body)
            for _ in range(rng.randint(0, 3)):
                if damaged:
                    damaged[rng.randrange(len(damaged))] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            del damaged[rng.randrange(len(damaged) + 1) :]
            try:
                our_decode(name, version, kind, bytes(damaged))
            except WireFormatError:
                pass


@pytest.mark.parametrize("version", [1, 9, 12])
def test_every_truncation_is_refused(version: int) -> None:
    body = codec.encode_request(ApiKey.METADATA, version, {"topics": [{"name": "a"}, {"name": "bc"}]})
    for size in range(len(body)):
        with pytest.raises(WireFormatError):
            codec.decode_request(ApiKey.METADATA, version, body[:size])


def test_bytes_after_a_request_are_ignored_and_after_a_response_refused() -> None:
    """librdkafka 2.16 asks for all topics with three bytes too many, which Apache Kafka does not mind."""
    request = codec.decode_request(ApiKey.METADATA, 13, bytes.fromhex("00000000010000"))
    assert request.topics is None
    body = codec.encode_response(ApiKey.METADATA, 12, {})
    with pytest.raises(WireFormatError, match="after the end"):
        codec.decode_response(ApiKey.METADATA, 12, body + b"\0")


def test_an_array_longer_than_its_bytes_is_refused_before_it_is_made() -> None:
    body = bytearray(codec.encode_request(ApiKey.METADATA, 1, {"topics": []}))
    for length in (1, 2**31 - 1, -2):
        with pytest.raises(WireFormatError):
            codec.decode_request(ApiKey.METADATA, 1, struct.pack(">i", length) + body[4:])


def test_missing_fields_take_their_default() -> None:
    decoded = codec.decode_request(ApiKey.FETCH, 17, codec.encode_request(ApiKey.FETCH, 17, {}))
    assert decoded.max_bytes == 2**31 - 1
    assert decoded.session_epoch == -1
    assert decoded.topics == []
    assert decoded.replica_state == {"replica_id": -1, "replica_epoch": -1}
    metadata = codec.decode_request(ApiKey.METADATA, 12, codec.encode_request(ApiKey.METADATA, 12, {}))
    assert metadata.topics == []
    assert metadata.allow_auto_topic_creation is True


def test_what_a_version_lacks_is_not_sent() -> None:
    fields = {"topics": [{"name": "a", "topic_id": uuid.UUID(int=7), "nonsense": 1}], "allow_auto_topic_creation": True}
    assert codec.encode_request(ApiKey.METADATA, 1, fields) == b"\0\0\0\1\0\1a"


def test_values_that_do_not_fit_raise_value_error() -> None:
    for fields in ({"min_bytes": 2**40}, {"min_bytes": "1"}, {"topics": None}, {"min_bytes": None}):
        with pytest.raises(ValueError, match="cannot"):
            codec.encode_request(ApiKey.FETCH, 17, fields)


def test_unknown_apis_and_versions_raise_value_error() -> None:
    for key, version in ((ApiKey.METADATA, 99), (4, 0), (ApiKey.FETCH, 3), (ApiKey.FETCH, -1)):
        with pytest.raises(ValueError):
            codec.decode_request(key, version, b"")
    with pytest.raises(ValueError, match="nothing"):
        codec.encode_data("nothing", 0, {})


def test_a_tagged_field_must_be_of_the_size_it_says() -> None:
    body = codec.encode_request(ApiKey.FETCH, 17, {"cluster_id": "abc"})
    assert body.endswith(b"\x01\x00\x04\x04abc")
    for tail in (b"\x01\x00\x05\x04abc\x00", b"\x01\x00\x03\x04abc", b"\x01\x00\x7f\x04abc"):
        with pytest.raises(WireFormatError):
            codec.decode_request(ApiKey.FETCH, 17, body[:-7] + tail)
    unknown = codec.decode_request(ApiKey.FETCH, 17, body[:-7] + b"\x02\x00\x04\x04abc\x63\x02xy")
    assert unknown.cluster_id == "abc"


def test_a_struct_has_the_fields_of_its_version() -> None:
    struct_ = codec.decode_response(ApiKey.METADATA, 1, codec.encode_response(ApiKey.METADATA, 1, {}))
    assert struct_.get("cluster_id") is None
    assert struct_.get("cluster_id", "x") == "x"
    assert "brokers" in struct_
    assert struct_.to_dict() == {"brokers": [], "controller_id": -1, "topics": []}
    assert repr(struct_) == "Struct(brokers=[], controller_id=-1, topics=[])"
    with pytest.raises(AttributeError, match="no field 'cluster_id'; it has brokers, controller_id, topics"):
        _ = struct_.cluster_id
    assert copy.deepcopy(struct_) == struct_


def test_a_node_does_not_load_what_it_does_not_need() -> None:
    script = (
        "import sys; from raftwerk.wire import codec; codec.encode_request(3, 12, {}); "
        "print([n for n in ('hypothesis', 'kio', 'raftwerk.wire.message_types') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("version", [4, 5])
def test_an_error_message_is_cut_to_what_a_string_can_hold(version: int) -> None:
    # It may quote a name of 32,767 bytes that a client sent.
    row = {"name": "t", "error_code": 42, "error_message": "No: " + "ä" * 16_400}
    data = codec.encode_response(ApiKey.CREATE_TOPICS, version, {"topics": [row]})
    message = codec.decode_response(ApiKey.CREATE_TOPICS, version, data).topics[0].error_message
    assert message == "No: " + "ä" * 16_381
    assert len(message.encode()) <= 2**15 - 1


def test_a_string_is_no_longer_than_kafkas_clients_take() -> None:
    """The compact form has room for more: a cluster would keep a name of a megabyte, and nobody could read it."""
    for size, is_taken in ((STRING_BYTES_MAX, True), (STRING_BYTES_MAX + 1, False)):
        data = codec.encode_request(ApiKey.METADATA, 9, {"topics": [{"name": "x" * size}]})
        if is_taken:
            assert len(codec.decode_request(ApiKey.METADATA, 9, data).topics[0].name) == size
        else:
            with pytest.raises(WireFormatError, match="string of 32768 bytes"):
                codec.decode_request(ApiKey.METADATA, 9, data)


def test_an_error_of_encoding_quotes_little_of_the_message() -> None:
    with pytest.raises(ValueError, match="cannot encode") as caught:
        codec.encode_request(ApiKey.FIND_COORDINATOR, 0, {"key": "k" * 100_000})
    assert len(str(caught.value)) < 1000
