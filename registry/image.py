"""What a registry knows: the subjects with their versions, the schemas by id, compatibility levels and modes.

It follows from the records of `_schemas` alone, in their order, so every registry that reads the topic has the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .contexts import DEFAULT, GLOBAL, context_of, prefix_of, qualified, setting_of, split
from .records import (
    CLEAR_SUBJECT,
    CONFIG,
    CONTEXT,
    DELETE_SUBJECT,
    MODE,
    SCHEMA,
    DamagedRecordError,
    Record,
    SchemaVersion,
    version_of,
)

BACKWARD, READWRITE, READONLY_OVERRIDE = "BACKWARD", "READWRITE", "READONLY_OVERRIDE"


class RegistryImage:
    """The state after the records so far. A level or mode of the subject None is the one of the default context."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, SchemaVersion]] = {}
        """The versions of each subject, deleted ones too, in the order of their numbers."""
        self.levels: dict[str | None, str] = {}
        self.modes: dict[str | None, str] = {}
        self.last_ids: dict[str, int] = {}
        """The greatest id that any schema has had, by context."""
        self.contexts: set[str] = set()
        """The contexts that have had subjects, beside the default one."""

    def snapshot(self) -> RegistryImage:
        """A copy that stays as it is, for a decision that takes long."""
        copied = RegistryImage()
        copied.subjects = {subject: dict(versions) for subject, versions in self.subjects.items()}
        copied.levels, copied.modes = dict(self.levels), dict(self.modes)
        copied.last_ids, copied.contexts = dict(self.last_ids), set(self.contexts)
        return copied

    def replay(self, record: Record) -> None:
        """Take a record in. Those of kinds that are not known say nothing. Raises `DamagedRecordError`."""
        kind, subject = record.key["keytype"], record.key.get("subject")
        if kind == SCHEMA:
            self._replay_schema(record)
        elif kind == CONFIG:
            _put(self.levels, subject, record.value, "compatibilityLevel")
        elif kind == MODE:
            _put(self.modes, subject, record.value, "mode")
        elif kind == DELETE_SUBJECT and record.value is not None:
            self._delete_up_to(str(subject), int(record.value.get("version", 0)))
        elif kind == CONTEXT and isinstance(record.key.get("context"), str):
            self._replay_context(record.key["context"], is_there=record.value is not None)
        elif kind == CLEAR_SUBJECT:
            self._clear(str(subject))

    def _clear(self, subject: str) -> None:
        """Forget the versions of a subject that are deleted, as Confluent's registry does."""
        kept = {one.version: one for one in self.versions(subject)}
        if kept:
            self.subjects[subject] = kept
        else:
            self.subjects.pop(subject, None)

    def _replay_schema(self, record: Record) -> None:
        if record.value is None:
            subject, version = str(record.key.get("subject")), record.key.get("version")
            versions = self.subjects.get(subject, {})
            versions.pop(version, None)  # type: ignore[arg-type]  # a key of another registry may have no number
            if not versions:
                self.subjects.pop(subject, None)
            return
        one = version_of(record.value)
        if not 0 < one.version < 1 << 31:
            raise DamagedRecordError(f"its version is {one.version}")
        versions = self.subjects.setdefault(one.subject, {})
        is_in_order = not versions or one.version in versions or one.version > next(reversed(versions))
        versions[one.version] = one
        if not is_in_order:
            self.subjects[one.subject] = dict(sorted(versions.items()))
        context = context_of(one.subject)
        self.last_ids[context] = max(self.last_ids.get(context, 0), one.schema_id)
        self._replay_context(context, is_there=True)

    def _replay_context(self, context: str, *, is_there: bool) -> None:
        if not is_there:
            self.contexts.discard(context)
        elif context != DEFAULT:
            self.contexts.add(context)

    def _delete_up_to(self, subject: str, last: int) -> None:
        versions = self.subjects.get(subject, {})
        for number, one in versions.items():
            if number <= last and not one.deleted:
                versions[number] = deleted(one)

    # -- questions

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[SchemaVersion]:
        """The versions of a subject, oldest first; none for an unknown one."""
        return [one for one in self.subjects.get(subject, {}).values() if with_deleted or not one.deleted]

    def all_versions(self, *, with_deleted: bool = False) -> Iterator[SchemaVersion]:
        """The versions of all subjects, in the order of the subjects' names."""
        for subject in sorted(self.subjects):
            yield from self.versions(subject, with_deleted=with_deleted)

    def with_id(self, schema_id: int, context: str = DEFAULT) -> list[SchemaVersion]:
        """The versions of a context, also deleted ones, that are the schema with this id."""
        return [one for one in self.in_context(context) if one.schema_id == schema_id]

    def in_context(self, context: str) -> list[SchemaVersion]:
        """The versions of all subjects of a context, also deleted ones."""
        return [one for one in self.all_versions(with_deleted=True) if context_of(one.subject) == context]

    def users_of(self, subject: str, version: int) -> list[SchemaVersion]:
        """The versions that are not deleted and refer to this one."""
        return [
            one
            for one in self.all_versions()
            if any(
                (qualified(each.subject, one.subject), each.version) == (subject, version) for each in one.references
            )
        ]

    def candidates(self, subject: str) -> list[str]:
        """The subjects that a name may mean in a search: in the default context, or else in any other."""
        context, name = split(subject)
        others = sorted(self.contexts) if context == DEFAULT else []
        return [subject, *(prefix_of(one) + name for one in others)]

    def level(self, subject: str | None) -> str:
        """The compatibility level that holds for a subject: its own, that of its context, or that of all contexts."""
        return _in_scope(self.levels, subject) or BACKWARD

    def mode(self, subject: str | None) -> str:
        """The mode that holds for a subject. READONLY_OVERRIDE of the default context goes before all others."""
        if _in_scope(self.modes, None) == READONLY_OVERRIDE:
            return READONLY_OVERRIDE
        return _in_scope(self.modes, subject) or READWRITE


def deleted(version: SchemaVersion) -> SchemaVersion:
    """The version, marked as deleted."""
    return SchemaVersion(
        version.subject,
        version.version,
        version.schema_id,
        version.schema,
        version.schema_type,
        version.references,
        deleted=True,
    )


def _in_scope(values: dict[str | None, str], subject: str | None) -> str | None:
    context = setting_of(prefix_of(context_of(subject)))
    return values.get(subject) or values.get(context) or values.get(GLOBAL)


def _put(values: dict[str | None, str], subject: Any, value: Any, field: str) -> None:
    name = setting_of(None if subject is None else str(subject))
    if value is None:
        values.pop(name, None)
    elif isinstance(value.get(field), str):
        values[name] = value[field].upper()
