"""Our schemas against Kafka's own message definitions, of which kafka-python carries many."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.schemas.load_json import load_json

from raftwerk.wire import frames, schemas
from raftwerk.wire.api_keys import ApiKey

_KINDS = {"timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64", "error_code": "int16"}


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
    assert (mine.shape == schemas.ARRAY) == field["type"].startswith("[]"), where
    if mine.schema is not None:
        check(mine.schema, field["fields"], version, where)
    else:
        assert _KINDS.get(mine.kind, mine.kind) == type_, where
    if type_ in ("string", "bytes", "records") or mine.schema is not None or mine.shape == schemas.ARRAY:
        assert mine.nullable == holds(field.get("nullableVersions", "none"), version), where
    if "default" in field and type_.startswith("int") and mine.shape == schemas.SCALAR:
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
