"""Our schemas against Kafka's own message definitions, of which kafka-python carries many, and against kio's."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, ClassVar

import pytest
from kio.schema.index import schema_name_map

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.schemas.load_json import load_json

from raftwerk.wire import frames, generate_messages, message_schemas, schemas
from raftwerk.wire.api_keys import ApiKey


def holds(versions: str, version: int) -> bool:
    if versions in ("none", ""):
        return False
    low, plus, high = versions.partition("+" if "+" in versions else "-")
    return version >= int(low) and (plus == "+" or version <= int(high or low))


def definition(key: ApiKey, kind: str) -> dict[str, Any] | None:
    name = "".join(part.capitalize() for part in key.name.split("_")) + kind.capitalize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return load_json(name)  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None


def versions_of(definition_: dict[str, Any]) -> range:
    low, _, high = definition_["validVersions"].partition("-")
    return range(int(low), int(high or low) + 1)


def check(ours: schemas.Schema, theirs: list[dict[str, Any]], version: int, where: str) -> None:
    current = [field for field in theirs if holds(field.get("versions", "0+"), version)]
    tagged = [field for field in current if holds(field.get("taggedVersions", "none"), version)]
    plain = [field for field in current if field not in tagged]
    assert len(ours.fields) == len(plain), where
    assert {field.tag for field in ours.tagged} == {field["tag"] for field in tagged}, where
    by_tag = {field["tag"]: field for field in tagged}
    pairs = list(zip(ours.fields, plain)) + [(field, by_tag[field.tag]) for field in ours.tagged]
    for mine, field in pairs:
        check_field(mine, field, version, f"{where}.{field['name']}")


def check_field(mine: schemas.Field, field: dict[str, Any], version: int, where: str) -> None:
    their_name = field["name"].lower().removesuffix("ms")
    assert mine.name.replace("_", "").removesuffix("ms") == their_name, where
    type_ = field["type"].removeprefix("[]")
    assert mine.array == field["type"].startswith("[]"), where
    if mine.schema is not None:
        check(mine.schema, field["fields"], version, where)
    else:
        assert mine.kind == type_, where
    if type_ in ("string", "bytes", "records") or mine.schema is not None or mine.array:
        assert mine.nullable == holds(field.get("nullableVersions", "none"), version), where
    if "default" in field and type_.startswith("int") and not mine.array:
        assert mine.default() == int(str(field["default"]), 0), where
    # kio does not carry this one default: such a request must say `topics: None` itself.
    if field.get("default") == "null" and not where.startswith("LIST_PARTITION_REASSIGNMENTS request"):
        assert mine.default() is None, where


CASES = [(key, kind) for key in ApiKey for kind in ("request", "response") if definition(key, kind)]


@pytest.mark.parametrize(("key", "kind"), CASES)
def test_schemas_agree_with_kafka(key: ApiKey, kind: str) -> None:
    theirs = definition(key, kind)
    assert theirs is not None
    checked = 0
    for version in versions_of(theirs):
        try:
            ours = schemas.load_api_schema(key, version, kind)
        except ValueError:
            continue
        check(ours, theirs["fields"], version, f"{key.name} {kind} {version}")
        assert ours.flexible == holds(theirs["flexibleVersions"], version)
        assert frames.is_flexible(key, version) == ours.flexible
        checked += 1
    assert checked


@pytest.mark.parametrize("group", message_schemas.GROUPS)
def test_the_generated_modules_are_current(group: str) -> None:
    for path, source in generate_messages.generate_group(group).items():
        assert path.read_text() == source, f"{path.name} is out of date: run {generate_messages.COMMAND}"


def test_every_message_of_kio_is_in_one_group() -> None:
    grouped = [name for names in message_schemas.GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(set(schema_name_map) - {"request_header", "response_header"})


def test_a_text_is_read_as_it_says() -> None:
    message = schemas.parse_message(
        "ARequest versions 1-4 flexible 3+\n"
        "    old int32 versions 1-2 default -1\n"
        "    items []Item nullable 2+ default null\n"
        "    hint string versions 3+ tag 0\n"
        "Item\n"
        "    flag bool default true\n"
    )
    old, items, hint = message.structs["ARequest"]
    assert (list(message.versions), message.flexible[0]) == ([1, 2, 3, 4], 3)
    assert (old.name, old.kind, old.array, old.default) == ("old", "int32", False, "-1")
    assert (2 in old.versions, 3 in old.versions) == (True, False)
    assert (items.kind, items.array, items.is_struct, 1 in items.nullable, 9 in items.nullable) == (
        "Item",
        True,
        True,
        False,
        True,
    )
    assert (hint.tag, hint.default) == (0, None)


@pytest.mark.parametrize(
    ("text", "versions"),
    [("none", []), ("3", [3]), ("3-5", [3, 4, 5]), ("4+", [4, 5, 6]), ("0+", [0, 1, 2, 3, 4, 5, 6])],
)
def test_versions_are_read_as_kafka_writes_them(text: str, versions: list[int]) -> None:
    assert [version for version in schemas.parse_versions(text) if version < 7] == versions


def test_versions_that_contradict_each_other_are_refused() -> None:
    @dataclasses.dataclass
    class First:
        a: int = dataclasses.field(metadata={"kafka_type": "int32"})
        b: int = dataclasses.field(metadata={"kafka_type": "int32"})
        __flexible__: ClassVar[bool] = True

    @dataclasses.dataclass
    class Second:
        b: int = dataclasses.field(metadata={"kafka_type": "int32"})
        a: int = dataclasses.field(metadata={"kafka_type": "int32"})
        __flexible__: ClassVar[bool] = True

    Second.__name__ = "First"
    with pytest.raises(generate_messages.SchemaConflictError, match="change places"):
        generate_messages.merge({0: First, 1: Second})
