"""What a registry answers, and which records it writes for it: pure decisions on the image.

The error codes and their sentences are those of Confluent's registry, since clients and people look for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from .contexts import DEFAULT, GLOBAL, check_subject, context_of, prefix_of, qualified, split
from .errors import (
    RegistryError,
    invalid_schema,
    invalid_version,
    numbers_out_of_range,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from .formats import Schema, parse, why_not_readable
from .image import READONLY_OVERRIDE, RegistryImage, deleted
from .records import (
    AVRO,
    PROTOBUF,
    Record,
    Reference,
    SchemaVersion,
    config_record,
    context_record,
    forget_schema_record,
    mode_record,
    schema_record,
)
from .references import Referenced

LATEST = "latest"
LEVELS = ("NONE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE")
MODES = ("READWRITE", "READONLY", READONLY_OVERRIDE, "IMPORT")
_NUMBER_MAX = (1 << 31) - 1
_READ_AGAIN = 50


@dataclass(frozen=True, slots=True)
class NewSchema:
    """A schema in a request. A `schema_id` of its own belongs to the mode IMPORT; `version` too, None for the next one.

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

    A schema that any subject of the context has had keeps its id.
    """
    check_subject(subject)
    parsed = _parse(image, subject, new)
    text = _text_of(parsed, new)
    same = _same_version(image, subject, text, new)
    if same is not None:
        return Decision(_registered(same))
    _check_writable(image, subject)
    everywhere = _find(image.in_context(context_of(subject)), text, new)
    if image.mode(subject) == "IMPORT":
        return _import(image, subject, new, text)
    if new.schema_id is not None and (everywhere is None or everywhere.schema_id != new.schema_id):
        raise RegistryError(42205, f"Subject {subject} is not in import mode")
    _check_compatible(image, subject, new, parsed)
    before = image.versions(subject, with_deleted=True)
    made = SchemaVersion(
        subject,
        before[-1].version + 1 if before else 1,
        everywhere.schema_id if everywhere is not None else image.last_ids.get(context_of(subject), 0) + 1,
        text,
        new.schema_type,
        new.references,
    )
    return Decision(_registered(made), _records_of(image, made))


def already_registered(image: RegistryImage, subject: str, new: NewSchema) -> Any:
    """The answer to a registration of what is there already. It writes nothing, so it needs no writer, in any mode.

    None for all else, also for what is refused: the writer may know of references that are not in this image yet.
    """
    try:
        same = _same_version(image, subject, _text_of(_parse(image, subject, new), new), new)
    except RegistryError:
        return None
    return None if same is None else _registered(same)


def _same_version(image: RegistryImage, subject: str, text: str, new: NewSchema) -> SchemaVersion | None:
    same = _find_in_subject(image, subject, text, new)
    return same if same is not None and new.schema_id in (None, same.schema_id) else None


def _records_of(image: RegistryImage, made: SchemaVersion) -> list[Record]:
    """The records of a new version: before the first one of a context, that of the context.

    Raises `RegistryError` 422 for an id or a version that records and frames cannot have.
    """
    if not (0 < made.schema_id <= _NUMBER_MAX and 0 < made.version <= _NUMBER_MAX):
        raise numbers_out_of_range()
    context = context_of(made.subject)
    is_new = context != DEFAULT and context not in image.contexts
    return [*([context_record(context)] if is_new else []), schema_record(made)]


def _import(image: RegistryImage, subject: str, new: NewSchema, text: str) -> Decision:
    """A version with the id, and perhaps the number, that it had in another registry."""
    if new.schema_id is None:
        raise RegistryError(42205, f"Subject {subject} is in import mode: name the schema's id")
    others = image.with_id(new.schema_id, context_of(subject))
    other = next((one for one in others if not _is(one, text, new)), None)
    if other is not None:
        raise RegistryError(42205, f"Overwrite new schema with id {new.schema_id} is not permitted.")
    before = image.versions(subject, with_deleted=True)
    version = new.version if new.version is not None else before[-1].version + 1 if before else 1
    made = SchemaVersion(subject, version, new.schema_id, text, new.schema_type, new.references)
    return Decision(_registered(made), _records_of(image, made))


def look_up(
    image: RegistryImage, subject: str, new: NewSchema, *, with_deleted: bool = False, form: str = ""
) -> Decision:
    """The version of the subject that is this schema. A subject that is not qualified is looked for in all contexts."""
    candidates = [one for one in image.candidates(subject) if image.versions(one, with_deleted=with_deleted)]
    for one in candidates:
        text = _text_of(_parse(image, one, new), new)
        found = _find_in_subject(image, one, text, new, with_deleted=with_deleted)
        if found is not None:
            return Decision(shown(image, found, form))
    raise schema_not_found() if candidates else subject_not_found(subject)


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


def version_in_contexts(
    image: RegistryImage, subject: str, number: str, *, with_deleted: bool = False
) -> SchemaVersion:
    """A version, for a subject that is not qualified of all contexts: of the default one if it has the subject."""
    there = (one for one in image.candidates(subject) if image.versions(one, with_deleted=with_deleted))
    return version(image, next(there, subject), number, with_deleted=with_deleted)


def by_id(image: RegistryImage, schema_id: int, subject: str = "") -> SchemaVersion:
    """A version that is the schema with this id, which says different things in different contexts.

    It is the context of `subject`. One that is not qualified is looked for in all contexts; without it, or where it has
    no such id, the default context counts.
    """
    context, name = split(subject)
    if not name:
        return _with_id(image.with_id(schema_id, context), schema_id)
    for one in image.candidates(subject):
        found = [each for each in image.versions(one, with_deleted=True) if each.schema_id == schema_id]
        if found:
            return _with_id(found, schema_id)
    return _with_id(image.with_id(schema_id) if context == DEFAULT else [], schema_id)


def _with_id(found: Sequence[SchemaVersion], schema_id: int) -> SchemaVersion:
    if not found:
        raise schema_not_found(f"Schema {schema_id}")
    return next((one for one in found if not one.deleted), found[0])


def delete_subject(image: RegistryImage, subject: str, *, permanent: bool = False) -> Decision:
    """Mark all versions of a subject as deleted; with `permanent` forget those that are marked already."""
    everything, alive = image.versions(subject, with_deleted=True), image.versions(subject)
    if not everything:
        raise subject_not_found(subject)
    _check_writable(image, subject)
    if permanent and alive:
        raise RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")
    if not permanent and not alive:
        raise RegistryError(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")
    chosen = everything if permanent else alive
    for one in chosen:
        _check_unused(image, one, removed_subject=subject)
    records = [forget_schema_record(one) if permanent else schema_record(deleted(one)) for one in chosen]
    return Decision([one.version for one in chosen], records + _forgotten_settings(image, subject))


def delete_version(image: RegistryImage, subject: str, number: str, *, permanent: bool = False) -> Decision:
    """Mark a version as deleted; with `permanent` forget one that is marked already."""
    found = version(image, subject, number, with_deleted=permanent or _number(number) is not None)
    _check_writable(image, subject)
    what = f"Subject '{subject}' Version {found.version}"
    if permanent and not found.deleted:
        raise RegistryError(40407, f"{what} was not deleted first before being permanently deleted")
    if not permanent and found.deleted:
        raise RegistryError(40406, f"{what} was soft deleted. Set permanent=true to delete permanently")
    _check_unused(image, found)
    if permanent:
        return Decision(found.version, [forget_schema_record(found)])
    is_last = image.versions(subject) == [found]
    settings = _forgotten_settings(image, subject) if is_last else []
    return Decision(found.version, [schema_record(deleted(found)), *settings])


def _forgotten_settings(image: RegistryImage, subject: str) -> list[Record]:
    """The records after which a subject has no level and no mode of its own: it has no versions any more."""
    levels = [config_record(subject, None)] * (subject in image.levels)
    return levels + [mode_record(subject, None)] * (subject in image.modes)


def _check_writable(image: RegistryImage, subject: str | None) -> None:
    if image.mode(subject) in ("READONLY", READONLY_OVERRIDE):
        raise RegistryError(42205, f"Subject {subject} is in read-only mode")


def _check_unused(image: RegistryImage, found: SchemaVersion, removed_subject: str = "") -> None:
    """Raise `RegistryError` 42206 where a version is referred to, but by one of a subject that is removed with it."""
    users = [one for one in image.users_of(found.subject, found.version) if one.subject != removed_subject]
    if users:
        names = ", ".join(f"{one.subject} version {one.version}" for one in users)
        raise RegistryError(
            42206, f"One or more references exist to the schema {found.subject} version {found.version}: {names}"
        )


# -- compatibility


def compatibility(image: RegistryImage, subject: str, number: str | None, new: NewSchema) -> list[str]:
    """What is not compatible with a version, or for None with those that the level asks for; none if all is."""
    parsed = _parse(image, subject, new)
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


# -- levels and modes: of a subject, of a context by its prefix, or for None of the default context


def set_level(image: RegistryImage, subject: str | None, level: object) -> Decision:
    """Set a compatibility level, which has to be named: without one, nothing is switched off."""
    wanted = level.upper() if isinstance(level, str) else ""
    if wanted not in LEVELS:
        raise RegistryError(42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS).lower()}")
    _check_writable(image, subject)
    return Decision({"compatibility": wanted}, [config_record(subject, wanted)])


def level_of(image: RegistryImage, subject: str | None, *, in_scope: bool = False) -> Decision:
    """The level that was set; `in_scope` also that of the context or of all contexts."""
    if subject is not None and subject not in image.levels and not in_scope:
        raise RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")
    return Decision({"compatibilityLevel": image.level(subject)})


def forget_level(image: RegistryImage, subject: str | None) -> Decision:
    """Remove a level, so that the next one in scope holds again. The answer is the level before."""
    before = level_of(image, subject).answer
    _check_writable(image, subject)
    return Decision(before, [config_record(subject, None)] if subject in image.levels else [])


def set_mode(image: RegistryImage, subject: str | None, mode: object, *, force: bool = False) -> Decision:
    """Set a mode. IMPORT is refused where there are schemas, unless by force."""
    wanted = str(mode).upper()
    if wanted not in MODES:
        raise RegistryError(42204, f"Invalid mode. Valid values are {', '.join(MODES)}")
    is_begun = wanted == "IMPORT" and image.mode(subject) != "IMPORT"
    if is_begun and not force and any(_holds_for(subject, one) for one in image.all_versions()):
        raise RegistryError(42205, "Cannot import since found existing subjects")
    return Decision({"mode": wanted}, [mode_record(subject, wanted)])


def _holds_for(setting: str | None, version: SchemaVersion) -> bool:
    """Whether what is set for a subject or context holds for this version."""
    context = prefix_of(context_of(version.subject))
    return setting in (version.subject, GLOBAL) or (setting or "") == context


def mode_of(image: RegistryImage, subject: str | None, *, in_scope: bool = False) -> Decision:
    """The mode that was set; `in_scope` also that of the context or of all contexts."""
    if subject is not None and subject not in image.modes and not in_scope:
        raise RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")
    return Decision({"mode": image.mode(subject)})


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
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:12]) <= _NUMBER_MAX:
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


def _parse(image: RegistryImage, subject: str, new: NewSchema) -> Schema:
    return parse(new.schema_type, new.text, _referenced(image, subject, new.references))


def _parse_version(image: RegistryImage, one: SchemaVersion) -> Schema:
    return parse(one.schema_type, one.schema, _referenced(image, one.subject, one.references))


def shown(image: RegistryImage, one: SchemaVersion, form: str) -> dict[str, Any]:
    """A version as JSON; with the form `serialized`, a schema of Protobuf is its descriptor in Base64."""
    found = one.as_json()
    if form == "serialized" and one.schema_type == PROTOBUF:
        found["schema"] = _parse_version(image, one).serialized()
    return found


def _referenced(image: RegistryImage, subject: str, references: Sequence[Reference]) -> list[Referenced]:
    """The schemas that a schema of the subject refers to, each once and behind those that it refers to itself."""
    found: dict[Reference, Referenced] = {}
    uses: dict[Reference, Sequence[Reference]] = {}
    left = deque((one, 0) for one in _in_context_of(subject, references))
    while left:
        one, depth = left.popleft()
        if one in found:
            continue
        used = image.subjects.get(one.subject, {}).get(one.version)
        if used is None:
            raise invalid_schema(f"its reference {one.name} is {one.subject} version {one.version}, which is not there")
        found[one], uses[one] = Referenced(one.name, used.schema, depth), _in_context_of(used.subject, used.references)
        left.extend((inner, depth + 1) for inner in uses[one])
    try:
        return [found[one] for one in TopologicalSorter(uses).static_order()]
    except CycleError:
        raise invalid_schema("its references refer to each other in a circle") from None


def _in_context_of(subject: str, references: Sequence[Reference]) -> list[Reference]:
    return [Reference(one.name, qualified(one.subject, subject), one.version) for one in references]


Decide = Callable[[RegistryImage], Decision]
"""A decision that waits for the image up to the end of the log."""
