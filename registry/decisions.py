"""What a registry answers, and which records it writes for it: pure decisions on the image.

The error codes and their sentences are those of Confluent's registry, since clients and people look for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from .errors import (
    RegistryError,
    invalid_schema,
    invalid_version,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from .formats import Schema, parse, why_not_readable
from .image import RegistryImage, deleted
from .records import (
    AVRO,
    PROTOBUF,
    Record,
    Reference,
    SchemaVersion,
    config_record,
    forget_schema_record,
    mode_record,
    schema_record,
)
from .references import Referenced

LATEST = "latest"
LEVELS = ("NONE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE")
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
_VERSION_MAX = (1 << 31) - 1
_READ_AGAIN = 50


@dataclass(frozen=True, slots=True)
class NewSchema:
    """A schema in a request. A `schema_id` of its own belongs to the mode IMPORT; `version` too, or is the next.

    With `normalize` it counts, and is kept, in its normalized form.
    """

    text: str
    schema_type: str = AVRO
    references: tuple[Reference, ...] = ()
    schema_id: int | None = None
    version: int | None = None
    normalize: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer, as JSON, and the records that must be in the log before it is given."""

    answer: Any
    records: Sequence[Record] = ()


# -- schemas


def register(image: RegistryImage, subject: str, new: NewSchema) -> Decision:
    """A new version of a subject, or the version that has this schema already.

    A schema that any subject has had keeps its id.
    """
    mode = image.mode(subject)
    if mode in ("READONLY", "READONLY_OVERRIDE"):
        raise RegistryError(42205, f"Subject {subject} is in read-only mode")
    parsed = _parse(image, new)
    text = _text_of(parsed, new)
    same = _find_in_subject(image, subject, text, new)
    if same is not None and new.schema_id in (None, same.schema_id):
        return Decision(_registered(same))
    everywhere = _find(list(image.all_versions(with_deleted=True)), text, new)
    if mode == "IMPORT":
        return _import(image, subject, new, text)
    if new.schema_id is not None and (everywhere is None or everywhere.schema_id != new.schema_id):
        raise RegistryError(42205, f"Subject {subject} is not in import mode")
    _check_compatible(image, subject, new, parsed)
    before = image.versions(subject, with_deleted=True)
    made = SchemaVersion(
        subject,
        before[-1].version + 1 if before else 1,
        everywhere.schema_id if everywhere is not None else image.last_id + 1,
        text,
        new.schema_type,
        new.references,
    )
    return Decision(_registered(made), [schema_record(made)])


def _import(image: RegistryImage, subject: str, new: NewSchema, text: str) -> Decision:
    """A version with the id, and perhaps the number, that it had in another registry."""
    if new.schema_id is None:
        raise RegistryError(42205, f"Subject {subject} is in import mode: name the schema's id")
    other = next((one for one in image.with_id(new.schema_id) if not _is(one, text, new)), None)
    if other is not None:
        raise RegistryError(42205, f"Overwrite new schema with id {new.schema_id} is not permitted.")
    before = image.versions(subject, with_deleted=True)
    version = new.version if new.version is not None else before[-1].version + 1 if before else 1
    made = SchemaVersion(subject, version, new.schema_id, text, new.schema_type, new.references)
    return Decision(_registered(made), [schema_record(made)])


def look_up(
    image: RegistryImage, subject: str, new: NewSchema, *, with_deleted: bool = False, form: str = ""
) -> Decision:
    """The version of the subject that is this schema."""
    versions = image.versions(subject, with_deleted=with_deleted)
    if not versions:
        raise subject_not_found(subject)
    text = _text_of(_parse(image, new), new)
    found = _find_in_subject(image, subject, text, new, with_deleted=with_deleted)
    if found is None:
        raise schema_not_found()
    return Decision(shown(image, found, form))


def versions_of(image: RegistryImage, subject: str, *, with_deleted: bool = False) -> Decision:
    """The numbers of a subject's versions."""
    found = image.versions(subject, with_deleted=with_deleted)
    if not found:
        raise subject_not_found(subject)
    return Decision([one.version for one in found])


def version(image: RegistryImage, subject: str, number: str, *, with_deleted: bool = False) -> SchemaVersion:
    """A version by its number, or the `latest`."""
    wanted = _number(number)
    versions = image.versions(subject, with_deleted=with_deleted)
    if not versions:
        raise subject_not_found(subject)
    found = versions[-1] if wanted is None else next((one for one in versions if one.version == wanted), None)
    if found is None:
        raise version_not_found(wanted or 0)
    return found


def by_id(image: RegistryImage, schema_id: int) -> SchemaVersion:
    """A version that is the schema with this id."""
    found = image.with_id(schema_id)
    if not found:
        raise schema_not_found(f"Schema {schema_id}")
    return next((one for one in found if not one.deleted), found[0])


def delete_subject(image: RegistryImage, subject: str, *, permanent: bool = False) -> Decision:
    """Mark all versions of a subject as deleted; with `permanent` forget those that are marked already."""
    everything, alive = image.versions(subject, with_deleted=True), image.versions(subject)
    if not everything:
        raise subject_not_found(subject)
    if permanent and alive:
        raise RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")
    if not permanent and not alive:
        raise RegistryError(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")
    chosen = everything if permanent else alive
    for one in alive:
        _check_unused(image, one)
    records = [forget_schema_record(one) if permanent else schema_record(deleted(one)) for one in chosen]
    if permanent:
        records += [config_record(subject, None)] * (subject in image.levels)
        records += [mode_record(subject, None)] * (subject in image.modes)
    return Decision([one.version for one in chosen], records)


def delete_version(image: RegistryImage, subject: str, number: str, *, permanent: bool = False) -> Decision:
    """Mark a version as deleted; with `permanent` forget one that is marked already."""
    found = version(image, subject, number, with_deleted=permanent or _number(number) is not None)
    what = f"Subject '{subject}' Version {found.version}"
    if permanent and not found.deleted:
        raise RegistryError(40407, f"{what} was not deleted first before being permanently deleted")
    if not permanent and found.deleted:
        raise RegistryError(40406, f"{what} was soft deleted. Set permanent=true to delete permanently")
    if permanent:
        return Decision(found.version, [forget_schema_record(found)])
    _check_unused(image, found)
    return Decision(found.version, [schema_record(deleted(found))])


def _check_unused(image: RegistryImage, found: SchemaVersion) -> None:
    users = [one for one in image.users_of(found.subject, found.version) if one.subject != found.subject]
    if users:
        names = ", ".join(f"{one.subject} version {one.version}" for one in users)
        raise RegistryError(
            42206, f"One or more references exist to the schema {found.subject} version {found.version}: {names}"
        )


# -- compatibility


def compatibility(image: RegistryImage, subject: str, number: str | None, new: NewSchema) -> list[str]:
    """What is not compatible with a version, or for None with those that the level asks for; none if all is."""
    parsed = _parse(image, new)
    if number is None:
        return _incompatible(image, subject, new, parsed)
    return _problems(image, [version(image, subject, number)], image.level(subject), new, parsed)


def _check_compatible(image: RegistryImage, subject: str, new: NewSchema, parsed: Schema) -> None:
    wrong = _incompatible(image, subject, new, parsed)
    if wrong:
        raise RegistryError(
            409,
            "Schema being registered is incompatible with an earlier schema for subject "
            f'"{subject}", details: [{"; ".join(wrong)}; compatibility: {image.level(subject)}]',
        )


def _incompatible(image: RegistryImage, subject: str, new: NewSchema, parsed: Schema) -> list[str]:
    level, versions = image.level(subject), image.versions(subject)
    return _problems(image, versions if level.endswith("_TRANSITIVE") else versions[-1:], level, new, parsed)


def _problems(
    image: RegistryImage, versions: Sequence[SchemaVersion], level: str, new: NewSchema, parsed: Schema
) -> list[str]:
    wrong: list[str] = []
    kind = level.removesuffix("_TRANSITIVE")
    for one in reversed(versions) if kind != "NONE" else ():
        if one.schema_type != new.schema_type:
            wrong.append(
                f"version {one.version} is of the type {one.schema_type}, and the new schema {new.schema_type}"
            )
            continue
        older = _parse_version(image, one)
        found: list[str] = []
        if kind in ("BACKWARD", "FULL"):
            why = why_not_readable(new.schema_type, parsed, older)
            found += [f"the new schema cannot read data of version {one.version}: {each}" for each in why]
        if kind in ("FORWARD", "FULL"):
            why = why_not_readable(new.schema_type, older, parsed)
            found += [f"version {one.version} cannot read data of the new schema: {each}" for each in why]
        if found:
            return wrong + found
    return wrong


# -- levels and modes


def set_level(subject: str | None, level: object) -> Decision:
    """Set the compatibility level of a subject, or for None of all."""
    wanted = str(level).upper()
    if wanted not in LEVELS:
        raise RegistryError(42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS).lower()}")
    return Decision({"compatibility": wanted}, [config_record(subject, wanted)])


def level_of(image: RegistryImage, subject: str | None, *, or_of_all: bool = False) -> Decision:
    """The level of a subject, or of all; `or_of_all` for a subject that has none of its own."""
    if subject is not None and subject not in image.levels and not or_of_all:
        raise RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")
    return Decision({"compatibilityLevel": image.level(subject or "")})


def forget_level(image: RegistryImage, subject: str | None) -> Decision:
    """Remove a level, so that the one of all subjects, or BACKWARD, holds again. The answer is the level before."""
    before = level_of(image, subject).answer
    return Decision(before, [config_record(subject, None)] if subject in image.levels else [])


def set_mode(image: RegistryImage, subject: str | None, mode: object, *, force: bool = False) -> Decision:
    """Set the mode of a subject, or for None of all. IMPORT is refused where there are schemas, unless by force."""
    wanted = str(mode).upper()
    if wanted not in MODES:
        raise RegistryError(42204, f"Invalid mode. Valid values are {', '.join(MODES)}")
    there = list(image.all_versions()) if subject is None else image.versions(subject)
    if wanted == "IMPORT" and there and not force:
        raise RegistryError(42205, "Cannot import since found existing subjects")
    return Decision({"mode": wanted}, [mode_record(subject, wanted)])


def mode_of(image: RegistryImage, subject: str | None, *, or_of_all: bool = False) -> Decision:
    """The mode of a subject, or of all; `or_of_all` for a subject that has none of its own."""
    if subject is not None and subject not in image.modes and not or_of_all:
        raise RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")
    return Decision({"mode": image.mode(subject or "")})


def forget_mode(image: RegistryImage, subject: str | None) -> Decision:
    """Remove a mode. The answer is the mode before."""
    before = mode_of(image, subject).answer
    return Decision(before, [mode_record(subject, None)] if subject in image.modes else [])


# -- parts


def _registered(made: SchemaVersion) -> dict[str, Any]:
    """The answer to a registration. Clients of Protobuf keep the form that they have sent, so that has no schema."""
    left_out = ("id", "subject", *(("schemaType", "references", "schema") if made.schema_type == PROTOBUF else ()))
    return {"id": made.schema_id, **{k: v for k, v in made.as_json().items() if k not in left_out}}


def _number(text: str) -> int | None:
    """A version's number; None for the latest."""
    if text in (LATEST, "-1"):
        return None
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:12]) <= _VERSION_MAX:
        raise invalid_version(text)
    return int(text)


def _is(one: SchemaVersion, text: str, new: NewSchema) -> bool:
    return (one.schema, one.schema_type, one.references) == (text, new.schema_type, new.references)


def _find(versions: Sequence[SchemaVersion], text: str, new: NewSchema) -> SchemaVersion | None:
    return next((one for one in reversed(versions) if _is(one, text, new)), None)


def _find_in_subject(
    image: RegistryImage, subject: str, text: str, new: NewSchema, *, with_deleted: bool = False
) -> SchemaVersion | None:
    """The version that is this schema.

    Another registry may have written a schema of Protobuf down in its own way, so the newest ones are read again.
    """
    versions = image.versions(subject, with_deleted=with_deleted)
    found = _find(versions, text, new)
    if found is not None or new.schema_type != PROTOBUF:
        return found
    like = [one for one in reversed(versions[-_READ_AGAIN:]) if _is(one, one.schema, new)]
    return next((one for one in like if _text_of(_parse_version(image, one), new) == text), None)


def _text_of(parsed: Schema, new: NewSchema) -> str:
    return parsed.normalized() if new.normalize else parsed.text


def _parse(image: RegistryImage, new: NewSchema) -> Schema:
    return parse(new.schema_type, new.text, _referenced(image, new.references))


def _parse_version(image: RegistryImage, one: SchemaVersion) -> Schema:
    return parse(one.schema_type, one.schema, _referenced(image, one.references))


def shown(image: RegistryImage, one: SchemaVersion, form: str) -> dict[str, Any]:
    """A version as JSON; with the form `serialized`, a schema of Protobuf is its descriptor in Base64."""
    found = one.as_json()
    if form == "serialized" and one.schema_type == PROTOBUF:
        found["schema"] = _parse_version(image, one).serialized()
    return found


def _referenced(image: RegistryImage, references: Sequence[Reference]) -> list[Referenced]:
    """The schemas that are referred to, each once and behind those that it refers to itself."""
    found: dict[Reference, Referenced] = {}
    uses: dict[Reference, Sequence[Reference]] = {}
    left = deque((one, 0) for one in references)
    while left:
        one, depth = left.popleft()
        if one in found:
            continue
        used = image.subjects.get(one.subject, {}).get(one.version)
        if used is None:
            raise invalid_schema(f"its reference {one.name} is {one.subject} version {one.version}, which is not there")
        found[one], uses[one] = Referenced(one.name, used.schema, depth), used.references
        left.extend((inner, depth + 1) for inner in used.references)
    try:
        return [found[one] for one in TopologicalSorter(uses).static_order()]
    except CycleError:
        raise invalid_schema("its references refer to each other in a circle") from None


Decide = Callable[[RegistryImage], Decision]
"""A decision that waits for the image up to the end of the log."""
