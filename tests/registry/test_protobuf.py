"""Protobuf schemas: their one text, what is refused, and what can read what."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftwerk.registry.errors import RegistryError
from raftwerk.registry.protobuf.compatibility import why_not_readable
from raftwerk.registry.protobuf.compiler import protoc
from raftwerk.registry.protobuf.schema import parse_protobuf
from raftwerk.registry.references import Referenced

pytestmark = pytest.mark.skipif(protoc() is None, reason="no protoc: Protobuf schemas are NOT tested")
MONEY = Referenced("shop/money.proto", 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }')


def proto3(body: str, head: str = "") -> str:
    return f'syntax = "proto3"; {head} {body}'


def why_not(reader: str, writer: str) -> list[str]:
    """The names of the rules that are broken, with the places."""
    found = why_not_readable(parse_protobuf(reader), parse_protobuf(writer))
    return [f"{one.partition(':')[0]} {one.rpartition('(at ')[2].rstrip(')')}" for one in found]


def test_one_text_in_the_layout_of_confluents_registry() -> None:
    written = """
        syntax = "proto3";
        package shop.orders;  // comments say nothing
        import "google/protobuf/timestamp.proto";
        import "shop/money.proto";
        option java_package = "org.example";
        message Order {
          enum State { NEW = 0; reserved 7 to max; SENT = 1 [deprecated = true]; }
          reserved 20 to 29, 40; reserved "old";
          .shop.orders.Order.State state = 1;
          shop.Money price = 2 [json_name = "cost"];
          repeated Line lines = 3; map<string, .shop.Money> extras = 4; optional string note = 5;
          oneof paid { google.protobuf.Timestamp at = 6; bool never = 7; }
          message Line {}
        }
        service Orders { rpc Put (Order) returns (stream Order.Line); }
    """
    text = """syntax = "proto3";
package shop.orders;

import "google/protobuf/timestamp.proto";
import "shop/money.proto";

option java_package = "org.example";

message Order {
  reserved 20 to 29, 40;
  reserved "old";

  State state = 1;
  Money price = 2 [json_name = "cost"];
  repeated Line lines = 3;
  map<string, Money> extras = 4;
  optional string note = 5;

  oneof paid {
    google.protobuf.Timestamp at = 6;
    bool never = 7;
  }

  message Line {}
  enum State {
    reserved 7 to max;
    NEW = 0;
    SENT = 1 [deprecated = true];
  }
}

service Orders {
  rpc Put (Order) returns (stream Order.Line);
}
"""
    parsed = parse_protobuf(written, [MONEY])
    assert parsed.text == text == parse_protobuf(text, [MONEY]).text
    assert parse_protobuf(parsed.serialized(), [MONEY]).text == text, "as a descriptor in Base64"


@pytest.mark.parametrize(
    "text",
    [
        'package p; message A { required string s = 1 [default = "a\\"\\n"]; optional bytes b = 2 [default = "\\001"];'
        " repeated group G = 3 { optional float f = 1 [default = -inf]; } extensions 100 to max;"
        " oneof z { int32 j = 8; }"
        " extend A { optional int32 q = 100; } } extend A { optional group H = 102 {} }",
        'edition = "2023"; option features.field_presence = IMPLICIT; message M { string s = 1; reserved foo;'
        " M m = 2 [features.message_encoding = DELIMITED]; }",
        proto3(
            'option (confluent.file_meta) = {tags: ["PII", "x"]}; message M { int32 i = 1 [deprecated = true, '
            '(confluent.field_meta) = {doc: "say \\"a\\"", params: [{key: "k", value: "v"}]}]; }'
            " enum E { A = 0; B = -1; }",
            'import "confluent/meta.proto";',
        ),
        proto3(
            'message M { int32 i = 1 [(tags) = "p", (tags) = "q", (kinds) = B]; string s = 2 [(kinds) = A]; }'
            " enum Kind { A = 0; B = 1; } extend google.protobuf.FieldOptions { repeated string tags = 50001;"
            " repeated Kind kinds = 50002; }",
            'import "google/protobuf/descriptor.proto";',
        ),
        proto3(
            "message a { message b { message a { b.c x = 1; } message c {} } } message b { a.b y = 1; }", "package a;"
        ),
        proto3(
            "message M { google.type.Money m = 1; confluent.type.Decimal d = 2; google.protobuf.Any any = 3; }",
            'import "google/type/money.proto"; import "confluent/types/decimal.proto"; import public '
            '"google/protobuf/any.proto";',
        ),
    ],
    ids=["proto2", "edition", "options", "repeated-options", "names", "well-known"],
)
def test_a_text_says_what_its_descriptor_says(text: str) -> None:
    parsed = parse_protobuf(text)
    again, sent = parse_protobuf(parsed.text), parse_protobuf(parsed.serialized())
    assert again.text == sent.text == parsed.text
    assert why_not_readable(parsed, again) == why_not_readable(again, parsed) == []
    assert parse_protobuf(parsed.normalized()).normalized() == parsed.normalized()


def test_normalized_schemas_have_one_order() -> None:
    one = proto3(
        "message M { int32 b = 2; int32 a = 1; oneof y { int32 d = 4; } oneof x { int32 c = 3; } reserved 9, 8 to 8; }",
        'import "google/protobuf/any.proto"; import "confluent/meta.proto";',
    )
    other = proto3(
        "message M { reserved 8; reserved 9; int32 a = 1; int32 b = 2; oneof x { int32 c = 3; }"
        " oneof y { int32 d = 4; } }",
        'import "confluent/meta.proto"; import "google/protobuf/any.proto";',
    )
    assert parse_protobuf(one).text != parse_protobuf(other).text
    assert parse_protobuf(one).normalized() == parse_protobuf(other).normalized()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("message", "line 1, column 8: Expected message name"),
        ("message A { required C c = 1; }", 'line 1, column 22: "C" is not defined'),
        (proto3("message A { int32 a = 1; int32 b = 1; }"), "Field number 1 has already been used"),
        (proto3("message A { int32 a = 19000; }"), "reserved for the protocol buffer library"),
        (proto3("message A { B b = 1; }", 'import "b.proto";'), "there is no reference for its import b.proto"),
        (proto3("", 'import "/etc/passwd";'), "no reference for its import"),
        (proto3("", 'import "../../etc/passwd";'), "not allowed"),
        ('edition = "2024"; message A {}', "only 2023"),
        ("AAAA", "Expected"),
        (" " * 300_000 + "{", "line"),
        (base64.b64encode(b"\n\x01x\x12\x01y\x22\x0a\n\x08A {} } {{").decode(), "line"),
        (proto3("message A { " * 100_000), "recursion limit"),
        (proto3("message A { option (x) = " + "{a: " * 200_000), "end of"),
        (proto3("message A { reserved 1" + "".join(f",{n}" for n in range(10, 130_000, 2)) + "; int32 a = 0; }"), ""),
    ],
    ids=lambda one: one[:20],
)
def test_what_is_no_schema_is_refused_in_bounded_time(text: str, why: str) -> None:
    begun = time.monotonic()
    with pytest.raises(RegistryError, match="Invalid schema") as refused:
        parse_protobuf(text)
    assert refused.value.code == 42201 and why in str(refused.value)
    assert "raftwerk-protoc" not in str(refused.value)
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize(
    "name", ["../x.proto", "/x.proto", "a//b.proto", "a/../../b.proto", "x\0", ".", "a" * 300, "a\\b"]
)
def test_names_of_references_stay_within_their_folder(name: str) -> None:
    with pytest.raises(RegistryError, match="which no file can be imported by"):
        parse_protobuf(proto3("message A {}"), [Referenced(name, "")])


def test_references_are_found_by_their_names() -> None:
    used = proto3("message A { shop.Money m = 1; }", 'import "shop/money.proto";')
    assert "shop.Money m = 1;" in parse_protobuf(used, [MONEY]).text
    other = Referenced(MONEY.name, 'syntax = "proto3"; package shop; message Coin {}', depth=1)
    assert parse_protobuf(used, [other, MONEY]).files[0].message_type[0].name == "Money", "the nearer one counts"


CASES: list[tuple[str, str, list[str]]] = [
    # writer, reader, what is wrong
    ("message A { int32 a = 1; }", "message A { int32 a = 1; string b = 2; }", []),
    ("message A { int32 a = 1; string b = 2; }", "message A { int32 a = 1; }", []),
    ("message A { int32 a = 1; }", "message A { int32 renamed = 1; }", []),
    ("message A {} message B {}", "message B {} message A {}", []),
    ("message A {}", "message A {} message B {}", []),
    ("message A {} message B {}", "message A {}", ["MESSAGE_REMOVED #/B"]),
    ("message A { message B {} }", "message A {} message B {}", ["MESSAGE_REMOVED #/A/B"]),
    *(
        (f"message A {{ {old} a = 1; }}", f"message A {{ {new} a = 1; }}", [])
        for old, new in (
            *(("int32", one) for one in ("uint32", "int64", "uint64", "bool", "E")),
            *(("sint32", "sint64"), ("string", "bytes"), ("fixed32", "sfixed32"), ("sfixed64", "fixed64")),
            *(("string", "repeated string"), ("repeated bytes", "bytes"), ("M", "repeated M")),
        )
    ),
    *(
        (f"message A {{ {old} a = 1; }}", f"message A {{ {new} a = 1; }}", ["FIELD_SCALAR_KIND_CHANGED #/A/1"])
        for old, new in (
            *(("int32", one) for one in ("sint32", "fixed32", "string", "float")),
            *(("float", "double"), ("fixed32", "fixed64"), ("E", "string")),
        )
    ),
    ("message A { int32 a = 1; }", "message A { repeated int32 a = 1; }", ["FIELD_NUMERIC_LABEL_CHANGED #/A/1"]),
    ("message A { repeated E a = 1; }", "message A { E a = 1; }", ["FIELD_NUMERIC_LABEL_CHANGED #/A/1"]),
    ("message A { int32 a = 1; }", "message A { M a = 1; }", ["FIELD_KIND_CHANGED #/A/1"]),
    ("message A { map<string, int32> a = 1; }", "message A { M a = 1; }", ["FIELD_KIND_CHANGED #/A/1"]),
    ("message A { map<string, int32> a = 1; }", "message A { map<string, bool> a = 1; }", []),
    (
        "message A { map<string, int32> a = 1; }",
        "message A { map<string, string> a = 1; }",
        ["FIELD_SCALAR_KIND_CHANGED #/A/1/2"],
    ),
    ("message A { M a = 1; }", "message A { N a = 1; }", ["FIELD_NAMED_TYPE_CHANGED #/A/1"]),
    ("message A { oneof o { int32 a = 1; int32 b = 2; } }", "message A {}", []),
    ("message A { oneof o { int32 a = 1; int32 b = 2; } }", "message A { oneof p { int32 a = 1; int32 b = 2; } }", []),
    ("message A { oneof o { int32 a = 1; int32 b = 2; } }", "message A { int32 a = 1; int32 b = 2; }", []),
    ("message A { oneof o { int32 a = 1; } }", "message A { oneof o { int32 a = 1; int32 b = 2; } }", []),
    (
        "message A { oneof o { int32 a = 1; int32 b = 2; } }",
        "message A { oneof o { int32 a = 1; } }",
        ["ONEOF_FIELD_REMOVED #/A/o/2"],
    ),
    ("message A { int32 a = 1; }", "message A { oneof o { int32 a = 1; int32 b = 2; } }", []),
    (
        "message A { int32 a = 1; int32 b = 2; }",
        "message A { oneof o { int32 a = 1; int32 b = 2; } }",
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/A/o"],
    ),
    (
        "message A { int32 a = 1; oneof o { int32 b = 2; } }",
        "message A { oneof o { int32 a = 1; int32 b = 2; } }",
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/A/o"],
    ),
    ("message A { optional int32 a = 1; }", "message A { int32 a = 1; }", []),
    ("message A { enum X { P = 0; Q = 1; } X x = 1; }", "message A { enum X { P = 0; } X x = 1; }", []),
]
BESIDE = " message M {} message N {} enum E { Z = 0; }"


@pytest.mark.parametrize(("writer", "reader", "wrong"), CASES)
def test_what_can_read_what(writer: str, reader: str, wrong: list[str]) -> None:
    assert why_not(proto3(reader + BESIDE), proto3(writer + BESIDE)) == wrong


def test_packages_and_required_fields() -> None:
    assert why_not(proto3("", "package b;"), proto3("", "package a;")) == ["PACKAGE_CHANGED #/"]
    without, required = "message A {}", "message A { required int32 a = 1; }"
    assert why_not(required, without) == ["REQUIRED_FIELD_ADDED #/A/1"]
    assert why_not(without, required) == ["REQUIRED_FIELD_REMOVED #/A/1"]
    assert why_not("message A { optional int32 a = 1; }", required) == ["REQUIRED_FIELD_REMOVED #/A/1"]


def test_messages_of_imports_are_compared() -> None:
    used = proto3("message A { shop.Money m = 1; }", 'import "shop/money.proto";')
    changed = Referenced(MONEY.name, MONEY.text.replace("int64", "string"))
    (why,) = why_not_readable(parse_protobuf(used, [changed]), parse_protobuf(used, [MONEY]))
    assert why == (
        "FIELD_SCALAR_KIND_CHANGED: the reader's cents is string or bytes, the writer's a number (at #/A/1/1)"
    )


KINDS = st.sampled_from(["int32", "uint32", "sint32", "bool", "string", "bytes", "fixed32", "float", "repeated string"])
VALUES: dict[str, Any] = {"string": "x", "bytes": b"x", "repeated string": ["x", "y"], "float": 1.5, "bool": True}
FIELDS = st.dictionaries(st.integers(1, 4), KINDS)


def message_of(fields: dict[int, str]) -> Any:
    """A class for a message with these fields."""
    from google.protobuf import descriptor_pool, message_factory

    text = proto3("message A { " + " ".join(f"{kind} f{number} = {number};" for number, kind in fields.items()) + " }")
    parsed, pool = parse_protobuf(text), descriptor_pool.DescriptorPool()
    pool.Add(parsed.root)
    found = pool.FindMessageTypeByName("A")
    return parsed, message_factory.GetMessageClass(found)


@settings(max_examples=40, deadline=None)
@given(FIELDS, FIELDS)
def test_what_is_called_readable_is_read(now: dict[int, str], before: dict[int, str]) -> None:
    (reader, read), (writer, write) = message_of(now), message_of(before)
    sent = write(**{f"f{number}": VALUES.get(kind, 1) for number, kind in before.items()})
    got = read.FromString(sent.SerializeToString())
    lost = {number for number in now.keys() & before.keys() if not getattr(got, f"f{number}")}
    if not why_not_readable(reader, writer):
        assert not lost
    else:
        changed = {number for number in now.keys() & before.keys() if now[number] != before[number]}
        assert changed
