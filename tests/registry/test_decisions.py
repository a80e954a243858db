"""What a registry answers and writes: each step on an image that is replayed from the records that it wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from raftwerk.registry import decisions
from raftwerk.registry.decisions import Decision, NewSchema
from raftwerk.registry.errors import RegistryError
from raftwerk.registry.image import RegistryImage
from raftwerk.registry.records import DamagedRecordError, Reference, decode

STRING, LONG = NewSchema('"string"'), NewSchema('{"type": "long"}')


def record(name: str, *fields: str | tuple[str, Any]) -> NewSchema:
    """A record with these fields of type int; a pair is a field with its default."""
    rows = [
        {"name": one, "type": "int"} if isinstance(one, str) else {"name": one[0], "type": "int", "default": one[1]}
        for one in fields
    ]
    return NewSchema(json.dumps({"type": "record", "name": name, "fields": rows}))


class Registry:
    """An image, and what was written."""

    def __init__(self) -> None:
        self.image = RegistryImage()
        self.log: list[tuple[bytes, bytes | None]] = []

    def do(self, decide: Callable[..., Decision], *arguments: Any, **options: Any) -> Any:
        decision = decide(self.image, *arguments, **options)
        for one in decision.records:
            self.log.append(one.encode())
            self.image.replay(decode(*self.log[-1]))
        return decision.answer

    def id_of(self, subject: str, new: NewSchema) -> int:
        found: int = self.do(decisions.register, subject, new)["id"]
        return found


@pytest.fixture
def registry() -> Registry:
    return Registry()


def code_of(registry: Registry, decide: Callable[..., Decision], *arguments: Any, **options: Any) -> int:
    before = len(registry.log)
    with pytest.raises(RegistryError) as refused:
        registry.do(decide, *arguments, **options)
    assert len(registry.log) == before
    return refused.value.code


def test_a_schema_has_one_id_and_each_subject_its_versions(registry: Registry) -> None:
    assert registry.id_of("a", record("R", "x")) == 1
    assert registry.id_of("b", STRING) == 2
    assert registry.id_of("b", NewSchema(' {"type" : "string"}')) == 2, "it says the same"
    assert registry.id_of("c", record("R", "x")) == 1
    assert registry.id_of("a", record("R", "x", ("y", 0))) == 3
    assert registry.do(decisions.versions_of, "a") == [1, 2]
    assert registry.do(decisions.look_up, "a", record("R", "x")) == {
        "subject": "a",
        "version": 1,
        "id": 1,
        "schema": '{"type":"record","name":"R","fields":[{"name":"x","type":"int"}]}',
    }
    assert decisions.version(registry.image, "a", "latest").version == 2
    assert decisions.by_id(registry.image, 2).subject == "b"
    assert len(registry.log) == 4


def test_the_records_are_those_of_confluents_registry(registry: Registry) -> None:
    registry.id_of("a", STRING)
    registry.do(decisions.set_level, "a", "full")
    registry.do(decisions.set_mode, None, "readonly")
    assert registry.log == [
        (
            b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
            b'{"subject":"a","version":1,"id":1,"schema":"\\"string\\"","deleted":false}',
        ),
        (b'{"keytype":"CONFIG","subject":"a","magic":0}', b'{"compatibilityLevel":"FULL"}'),
        (b'{"keytype":"MODE","subject":null,"magic":0}', b'{"mode":"READONLY"}'),
    ]


@pytest.mark.parametrize(
    ("level", "allowed"),
    [
        ("NONE", {"wider", "narrower", "other"}),
        ("BACKWARD", {"wider", "narrower"}),
        ("FORWARD", {"wider", "narrower", "required"}),
        ("FULL", {"wider", "narrower"}),
    ],
)
def test_levels_decide_what_may_follow(registry: Registry, level: str, allowed: set[str]) -> None:
    registry.do(decisions.set_level, None, level)
    registry.id_of("a", record("R", "x", ("y", 0)))
    followers = {
        "wider": record("R", "x", ("y", 0), ("z", 0)),
        "narrower": record("R", "x"),
        "required": record("R", "x", ("y", 0), "z"),
        "other": STRING,
    }
    fits = {name for name, new in followers.items() if not decisions.compatibility(registry.image, "a", None, new)}
    assert fits == (allowed | {"required"} if level == "NONE" else allowed)
    for name in followers.keys() - fits:
        assert code_of(registry, decisions.register, "a", followers[name]) == 409


def test_transitive_levels_look_at_all_versions(registry: Registry) -> None:
    registry.id_of("a", record("R", "x"))
    registry.id_of("a", record("R", "x", ("y", 0)))
    new = record("R", "x", "y")  # it reads the second version, and not the first
    assert decisions.compatibility(registry.image, "a", None, new) == []
    registry.do(decisions.set_level, "a", "BACKWARD_TRANSITIVE")
    (why,) = decisions.compatibility(registry.image, "a", None, new)
    assert "cannot read data of version 1" in why and "'y'" in why
    assert decisions.compatibility(registry.image, "a", "2", new) == []


def test_deleted_versions_keep_their_ids_and_come_back(registry: Registry) -> None:
    registry.id_of("a", STRING)
    assert registry.do(decisions.delete_version, "a", "1") == 1
    assert code_of(registry, decisions.delete_version, "a", "1") == 40406
    assert code_of(registry, decisions.versions_of, "a") == 40401
    assert registry.do(decisions.versions_of, "a", with_deleted=True) == [1]
    assert decisions.by_id(registry.image, 1).schema == '"string"'
    assert registry.do(decisions.register, "a", STRING) == {"id": 1, "version": 2, "schema": '"string"'}
    assert code_of(registry, decisions.delete_subject, "a", permanent=True) == 40405
    assert registry.do(decisions.delete_subject, "a") == [2]
    assert code_of(registry, decisions.delete_subject, "a") == 40404
    assert registry.do(decisions.delete_subject, "a", permanent=True) == [1, 2]
    assert code_of(registry, decisions.delete_subject, "a") == 40401
    assert registry.id_of("a", LONG) == 2, "an id is never given twice"


def test_a_cleared_subject_keeps_what_is_not_deleted(registry: Registry) -> None:
    """Only Confluent's registry writes such a record: it forgets what was deleted."""
    clear = b'{"keytype":"CLEAR_SUBJECT","subject":"a","magic":0}'
    for text in ('"string"', '"bytes"'):
        registry.id_of("a", NewSchema(text))
    registry.do(decisions.delete_version, "a", "1")
    registry.image.replay(decode(clear, b'{"subject":"a"}'))
    assert registry.do(decisions.versions_of, "a", with_deleted=True) == [2]
    registry.do(decisions.delete_subject, "a")
    registry.image.replay(decode(clear, b'{"subject":"a"}'))
    assert not registry.image.subjects


ORDER = '{"type":"record","name":"Order","fields":[{"name":"price","type":"Money"}]}'
"""It uses the type `Money`, which it does not define."""


def order_of(subject: str) -> NewSchema:
    """An order whose price is the first version of this subject."""
    return NewSchema(ORDER, references=(Reference("Money", subject, 1),))


def test_references_are_types_of_the_schema_and_stay(registry: Registry) -> None:
    registry.id_of("money", record("Money", "cents"))
    assert code_of(registry, decisions.register, "order", NewSchema(ORDER)) == 42201
    used = order_of("money")
    registry.id_of("order", used)
    assert registry.do(decisions.look_up, "order", used)["references"] == [
        {"name": "Money", "subject": "money", "version": 1}
    ]
    assert code_of(registry, decisions.delete_subject, "money") == 42206
    assert code_of(registry, decisions.delete_version, "money", "1") == 42206
    missing = NewSchema(ORDER, references=(Reference("Money", "money", 7),))
    assert code_of(registry, decisions.register, "order", missing) == 42201


def test_deleted_versions_that_others_refer_to_stay(registry: Registry) -> None:
    """As in Confluent's registry: what is marked as deleted may be referred to, and is there until nobody does."""
    registry.id_of("money", record("Money", "cents"))
    registry.do(decisions.delete_subject, "money")
    registry.id_of("order", order_of("money"))
    assert code_of(registry, decisions.delete_subject, "money", permanent=True) == 42206
    assert code_of(registry, decisions.delete_version, "money", "1", permanent=True) == 42206
    registry.do(decisions.delete_subject, "order")
    assert registry.do(decisions.delete_version, "money", "1", permanent=True) == 1


def test_references_within_a_subject(registry: Registry) -> None:
    """They keep a version, but not the whole subject: with it, those who refer to it go."""
    registry.do(decisions.set_level, "a", "NONE")
    registry.id_of("a", record("Money", "cents"))
    registry.id_of("a", order_of("a"))
    assert code_of(registry, decisions.delete_version, "a", "1") == 42206
    assert registry.do(decisions.delete_subject, "a") == [1, 2]
    assert registry.do(decisions.delete_subject, "a", permanent=True) == [1, 2]


def test_modes(registry: Registry) -> None:
    registry.id_of("a", STRING)
    registry.do(decisions.set_mode, "a", "READONLY")
    assert code_of(registry, decisions.register, "a", LONG) == 42205
    assert registry.id_of("a", STRING) == 1, "it is there already"
    assert registry.do(decisions.mode_of, "a") == {"mode": "READONLY"}
    assert code_of(registry, decisions.mode_of, "b") == 40409
    assert registry.do(decisions.forget_mode, "a") == {"mode": "READONLY"}
    assert code_of(registry, decisions.set_mode, "a", "IMPORT") == 42205
    assert code_of(registry, decisions.set_mode, None, "sideways") == 42204
    registry.do(decisions.set_mode, "b", "IMPORT")
    assert code_of(registry, decisions.register, "b", STRING) == 42205
    assert registry.do(decisions.register, "b", NewSchema('"bytes"', schema_id=70, version=5))["id"] == 70
    assert code_of(registry, decisions.register, "b", NewSchema('"int"', schema_id=70)) == 42205
    assert registry.do(decisions.versions_of, "b") == [5]
    assert registry.id_of("c", LONG) == 71


def test_levels_of_subjects(registry: Registry) -> None:
    assert registry.do(decisions.level_of, None) == {"compatibilityLevel": "BACKWARD"}
    assert code_of(registry, decisions.level_of, "a") == 40408
    assert registry.do(decisions.level_of, "a", in_scope=True) == {"compatibilityLevel": "BACKWARD"}
    assert registry.do(decisions.set_level, "a", "none") == {"compatibility": "NONE"}
    assert registry.do(decisions.forget_level, "a") == {"compatibilityLevel": "NONE"}
    unnamed: list[object] = ["some", None, ["FULL"], {}]
    for wrong in unnamed:
        assert code_of(registry, decisions.set_level, "a", wrong) == 42203


@pytest.mark.parametrize("number", ["0", "-2", "x", "", "2147483648", "9" * 40, "²"])
def test_versions_that_cannot_be(registry: Registry, number: str) -> None:
    registry.id_of("a", STRING)
    assert code_of(registry, lambda image: Decision(decisions.version(image, "a", number))) == 42202


def test_damaged_records_are_told(registry: Registry) -> None:
    key = b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
    deep = b'{"schema":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    endless = b'{"subject":"a","version":1,"id":Infinity,"schema":"x"}'
    values = (b"5", b"{}", b'{"subject":"a"}', deep, endless)
    for wrong in ((None, b"{}"), (b"x", b"{}"), (b"[]", b"{}"), *((key, value) for value in values)):
        with pytest.raises(DamagedRecordError):
            registry.image.replay(decode(*wrong))
    registry.image.replay(decode(b'{"keytype":"NOOP","magic":0}', None))
    registry.image.replay(decode(b'{"keytype":"CONTEXT","magic":0}', b"{}"))
    assert not registry.image.subjects


def protobuf(text: str, *references: Reference) -> NewSchema:
    return NewSchema(text, "PROTOBUF", references)


def test_schemas_of_protobuf(registry: Registry) -> None:
    money = protobuf('syntax = "proto3"; package shop; message Money { int64 cents = 1; }')
    assert registry.do(decisions.register, "money", money) == {"id": 1, "version": 1}
    used = 'syntax = "proto3"; import "shop/money.proto"; message Order { shop.Money price = 1; }'
    assert code_of(registry, decisions.register, "order", protobuf(used)) == 42201
    order = protobuf(used, Reference("shop/money.proto", "money", 1))
    assert registry.id_of("order", order) == 2
    assert json.loads(registry.log[-1][1] or b"") == {
        "subject": "order",
        "version": 1,
        "id": 2,
        "schemaType": "PROTOBUF",
        "references": [{"name": "shop/money.proto", "subject": "money", "version": 1}],
        "schema": 'syntax = "proto3";\n\nimport "shop/money.proto";\n\nmessage Order {\n  shop.Money price = 1;\n}\n',
        "deleted": False,
    }
    changed = protobuf(used.replace("shop.Money", "string"), *order.references)
    (why,) = decisions.compatibility(registry.image, "order", None, changed)
    assert why.startswith("the new schema cannot read data of version 1: FIELD_KIND_CHANGED")
    (why,) = decisions.compatibility(registry.image, "order", None, STRING)
    assert why == "version 1 is of the type PROTOBUF, and the new schema AVRO"


def test_a_schema_of_protobuf_that_another_registry_wrote_is_the_same(registry: Registry) -> None:
    theirs = 'syntax = "proto3";\n\nmessage A {\n  // a comment\n  .B b = 1;\n}\nmessage B {}\n'
    version = {"subject": "a", "version": 1, "id": 7, "schemaType": "PROTOBUF", "schema": theirs, "deleted": False}
    key = b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
    registry.image.replay(decode(key, json.dumps(version).encode()))
    ours = protobuf('syntax = "proto3"; message A { B b = 1; } message B {}')
    assert registry.do(decisions.look_up, "a", ours)["schema"] == theirs
    assert registry.id_of("a", ours) == 7
    assert not registry.log


def test_normalized_schemas_are_found_in_any_order(registry: Registry) -> None:
    one, other = (
        NewSchema(f'syntax = "proto3"; message A {{ {fields} }}', "PROTOBUF", normalize=True)
        for fields in ("int32 b = 2; int32 a = 1;", "int32 a = 1; int32 b = 2;")
    )
    assert registry.id_of("a", one) == registry.id_of("a", other) == 1
    assert decisions.version(registry.image, "a", "1").schema.index("a = 1") == 40


def test_references_may_use_others_and_never_themselves(registry: Registry) -> None:
    for name, uses in (("a", ()), ("b", ("a",)), ("c", ("b", "a"))):
        imports = "".join(f'import "{one}.proto"; ' for one in uses)
        fields = " ".join(f"{one.upper()} {one} = {n};" for n, one in enumerate(uses, 1))
        new = protobuf(
            f'syntax = "proto3"; {imports} message {name.upper()} {{ {fields} }}',
            *(Reference(f"{one}.proto", one, 1) for one in uses),
        )
        registry.id_of(name, new)
    registry.do(decisions.set_mode, "a", "IMPORT", force=True)
    circle = NewSchema("message A {}", "PROTOBUF", (Reference("b.proto", "b", 1),), schema_id=9, version=1)
    registry.id_of("a", circle)
    used = protobuf('syntax = "proto3"; import "b.proto"; message D {}', Reference("b.proto", "b", 1))
    assert code_of(registry, decisions.register, "d", used) == 42201


def test_schemas_of_json_schema(registry: Registry) -> None:
    money = NewSchema('{"type": "integer"}', "JSON")
    assert registry.do(decisions.register, "money", money) == {
        "id": 1,
        "version": 1,
        "schemaType": "JSON",
        "schema": '{"type":"integer"}',
    }
    text = '{"properties": {"price": {"$ref": "money.json"}}, "additionalProperties": false}'
    assert code_of(registry, decisions.register, "order", NewSchema(text, "JSON")) == 42201
    order = NewSchema(text, "JSON", (Reference("money.json", "money", 1),))
    assert registry.id_of("order", order) == registry.id_of("order", order) == 2
    assert b'"schemaType":"JSON","references":[{"name":"money.json"' in (registry.log[-1][1] or b"")
    changed = NewSchema(text.replace('{"$ref": "money.json"}', '{"type": "string"}'), "JSON")
    (why,) = decisions.compatibility(registry.image, "order", None, changed)
    assert why == (
        "the new schema cannot read data of version 1: TYPE_CHANGED: the reader takes string, the writer has integer "
        "(at #/properties/price)"
    )
    one, other = (NewSchema(text, "JSON", normalize=True) for text in ('{"a":1,"b":2}', '{"b":2,"a":1}'))
    assert registry.id_of("n", one) == registry.id_of("n", other) == 3
