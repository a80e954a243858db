"""Whether data that one JSON schema allows is allowed by another, by the rules of Confluent's registry.

The question has no answer in general, so it is decided keyword by keyword, and what cannot be decided is not
compatible. A schema is seen as parts that must all hold: it itself, and those of `allOf` and `$ref`. The reader's
parts must each allow what some part of the writer's allows. Within itself, a recursive schema is as good as the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import invalid_schema
from .keywords import bound_problems, form_problems, type_problems, types_of, value_problems
from .objects import Items, Properties, is_simple
from .schema import JsonSchema

_SHOWN = 10
_STEPS_MAX = 300_000
"""How many pairs of schemas are compared at most."""
_STEPS_OF_PATTERN = 20
_SUMS = ("anyOf", "oneOf")
_NOT_PLAIN = ("$ref", "$recursiveRef", "$dynamicRef", "allOf", *_SUMS)
_SAME_OR_GONE = {
    "propertyNames": ("object", "PROPERTY_NAMES_CHANGED"),
    "dependencies": ("object", "DEPENDENCY_ARRAY_CHANGED"),
    "dependentRequired": ("object", "DEPENDENCY_ARRAY_CHANGED"),
    "dependentSchemas": ("object", "DEPENDENCY_SCHEMA_CHANGED"),
    "unevaluatedProperties": ("object", "UNEVALUATED_PROPERTIES_NARROWED"),
    "unevaluatedItems": ("array", "UNEVALUATED_ITEMS_NARROWED"),
    "contains": ("array", "CONTAINS_CHANGED"),
    "minContains": ("array", "MIN_CONTAINS_CHANGED"),
    "maxContains": ("array", "MAX_CONTAINS_CHANGED"),
}
"""Keywords that must be the same for both, or be gone for the reader."""
_LATER_KEYWORDS = ("prefixItems", "unevaluatedItems", "unevaluatedProperties")
"""Keywords with schemas that older drafts do not know. There they may be anything, and say nothing."""
_CONDITION = ("if", "then", "else")
_ANYTHING: dict[str, Any] = {}
_NEVER = {"not": _ANYTHING}


def why_not_readable(reader: JsonSchema, writer: JsonSchema) -> list[str]:
    """What a reader does not allow of the writer's data, a sentence for each, at most ten; none if it allows all.

    Raises `RegistryError` 42201 for schemas that would take too long to compare.
    """
    if reader.text == writer.text and reader.documents == writer.documents:
        return []
    check = _Check(reader, writer)
    try:
        return check.compare(writer.root, reader.root, "#")[:_SHOWN]
    except RecursionError:
        raise invalid_schema("it is nested too deeply to compare it with another version") from None


class _Check:
    def __init__(self, reader: JsonSchema, writer: JsonSchema) -> None:
        self._targets = {**reader.targets, **writer.targets}
        self._only_references = {number for one in (reader, writer) if one.ignores_siblings for number in one.targets}
        self._unknown = {**_unknown_keywords(reader), **_unknown_keywords(writer)}
        self._known_parts: dict[int, Mapping[str, Any]] = {}
        self._left = _STEPS_MAX
        self._fitting: set[tuple[int, int]] = set()
        """Pairs that fit, or were begun; those that hang on one that does not fit are taken out again."""
        self._begun: list[tuple[int, int]] = []
        self._made: list[Any] = []
        """Schemas that were put together, which must stay, since pairs are told by `id`."""

    def compare(self, before: Any, now: Any, path: str) -> list[str]:
        """What `now`, the reader's, does not allow of `before`, the writer's."""
        self._step()
        before, now = self._led_to(before), self._led_to(now)
        if before is False or now is True or now == {}:
            return []
        if now is False:
            return [_told("TYPE_NARROWED", "the reader takes nothing here", path)]
        pair = (id(before), id(now))
        if pair in self._fitting:
            return []
        mark = len(self._begun)
        self._fitting.add(pair)
        self._begun.append(pair)
        problems = [problem for part in self._parts(now) for problem in self._part(before, part, path)]
        while problems and len(self._begun) > mark:
            self._fitting.discard(self._begun.pop())
        return problems

    def _led_to(self, schema: Any) -> Any:
        """The schema that one stands for which is nothing but a reference."""
        seen: set[int] = set()
        while id(schema) in self._only_references and id(schema) not in seen:
            seen.add(id(schema))
            schema = self._targets[id(schema)][0]
        return schema

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise invalid_schema("it is too complex to compare it with another version")

    def _fits(self, before: Any, now: Any) -> bool:
        return not self.compare(before, now, "#")

    def _all(self, schemas: Sequence[Any]) -> Any:
        """One schema for several that must all hold."""
        if len(schemas) == 1:
            return schemas[0]
        made = {"allOf": list(schemas)} if schemas else True
        self._made.append(made)
        return made

    def _parts(self, schema: Any) -> list[Mapping[str, Any]]:
        """The parts that must all hold, without `allOf` and references."""
        parts: list[Mapping[str, Any]] = []
        seen: set[int] = set()
        left = [schema]
        while left:
            one = left.pop(0)
            if id(one) in seen or one is True:
                continue
            self._step()
            seen.add(id(one))
            if one is False:
                return [_NEVER]
            targets = self._targets.get(id(one), [])
            if not (targets and id(one) in self._only_references):
                parts.append(self._known_part(one))
                left += one.get("allOf", ())
            left += targets
        return parts

    def _known_part(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """A schema without what its draft does not know."""
        unknown = self._unknown.get(id(schema))
        if unknown is None:
            return schema
        if id(schema) not in self._known_parts:
            made = {keyword: value for keyword, value in schema.items() if keyword not in unknown}
            self._known_parts[id(schema)] = made
            self._targets[id(made)] = self._targets.get(id(schema), [])
        return self._known_parts[id(schema)]

    def _part(self, before: Any, now: Mapping[str, Any], path: str) -> list[str]:
        """What a part of the reader's does not allow, compared with the part of the writer's that is nearest."""
        parts = self._parts(before) or [_ANYTHING]
        problems = [problem for sum_ in _SUMS if sum_ in now for problem in self._sum(parts, now[sum_], sum_, path)]
        if all(keyword in _NOT_PLAIN for keyword in now):
            return problems
        nearest: list[str] | None = None
        for one in parts:
            found = list(self._plain(one, now, path))
            if found and self._all_branches_fit(one, now):
                found = []
            if nearest is None or len(found) < len(nearest):
                nearest = found
            if not nearest:
                break
        return problems + (nearest or [])

    # -- anyOf and oneOf

    def _all_branches_fit(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
        """Whether each branch of the writer's sum is allowed by the reader's part without its own sums."""
        plain = {keyword: value for keyword, value in now.items() if keyword not in _NOT_PLAIN}
        self._made.append(plain)
        return any(all(self._fits(one, plain) for one in before[sum_]) for sum_ in _SUMS if sum_ in before)

    def _sum(self, parts: Sequence[Mapping[str, Any]], branches: Sequence[Any], name: str, path: str) -> list[str]:
        """What the reader's branches do not allow."""
        for one in parts:
            if any(self._fits(one, branch) for branch in branches):
                return []
        rule = "COMBINED_TYPE_SUBSCHEMAS_CHANGED"
        for one in parts:
            for kind, own in self._own_branches(one):
                if kind == "anyOf" and name == "oneOf" and len(own) > 1:
                    rule = "COMBINED_TYPE_CHANGED"
                elif self._matched(own, branches):
                    return []
                elif len(own) > len(branches):
                    rule = "SUM_TYPE_NARROWED"
        return [_told(rule, f"not all that the writer has is in {name} of the reader", path)]

    def _own_branches(self, one: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
        """The branches of a part; several types are branches, too."""
        for kind in _SUMS:
            if kind in one:
                yield kind, one[kind]
        if isinstance(one.get("type"), list):
            made = [{**one, "type": name} for name in one["type"]]
            self._made.append(made)
            yield "type", made

    def _matched(self, before: Sequence[Any], now: Sequence[Any]) -> bool:
        """Whether each of the writer's branches fits one of the reader's, each a different one."""
        taken: dict[int, int] = {}

        def place(number: int, tried: set[int]) -> bool:
            for one in sorted(range(len(now)), key=lambda n: n != number):  # the one at the same place first
                if one not in tried and self._fits(before[number], now[one]):
                    tried.add(one)
                    if one not in taken or place(taken[one], tried):
                        taken[one] = number
                        return True
            return False

        return all(place(number, set()) for number in range(len(before)))

    # -- one part with one

    def _plain(self, before: Mapping[str, Any], now: Mapping[str, Any], path: str) -> Iterator[str]:
        """What the keywords of a part do not allow of another one's."""
        types = types_of(before) & types_of(now)
        single = [*type_problems(before, now), *value_problems(before, now)]
        single += [*bound_problems(before, now, types), *form_problems(before, now, types)]
        for one in single:
            yield _told(one.rule, one.sentence, f"{path}/{one.keyword}" if one.keyword else path)
        yield from self._not(before, now, path)
        yield from self._same_or_gone(before, now, types, path)
        if "object" in types:
            yield from self._properties(before, now, path)
        if "array" in types:
            yield from self._items(before, now, path)

    def _not(self, before: Mapping[str, Any], now: Mapping[str, Any], path: str) -> Iterator[str]:
        if "not" in now and not ("not" in before and self._fits(now["not"], before["not"])):
            yield _told("NOT_TYPE_EXTENDED", "the reader excludes more", f"{path}/not")

    def _same_or_gone(
        self, before: Mapping[str, Any], now: Mapping[str, Any], types: frozenset[str], path: str
    ) -> Iterator[str]:
        for keyword, (kind, rule) in _SAME_OR_GONE.items():
            is_seen_as_rest = keyword.startswith("unevaluated") and is_simple(now)
            if keyword not in now or kind not in types or is_seen_as_rest:
                continue
            if keyword not in before or not self._is_same(before[keyword], now[keyword], set()):
                yield _told(rule, f"{keyword} is not what it was", f"{path}/{keyword}")
        if "if" in now and ("then" in now or "else" in now):
            pairs = [(before.get(one), now.get(one)) for one in _CONDITION]
            if not all(self._is_same(old, new, set()) for old, new in pairs):
                yield _told("CONDITION_CHANGED", "the reader has another condition", f"{path}/if")

    def _is_same(self, before: Any, now: Any, seen: set[tuple[int, int]]) -> bool:
        """Whether two schemas say the same in the same way, with what they refer to."""
        self._step()
        pair = (id(before), id(now))
        if pair in seen:
            return True
        seen.add(pair)
        if isinstance(before, dict) and isinstance(now, dict):
            led = self._targets.get(id(before), []), self._targets.get(id(now), [])
            same_targets = len(led[0]) == len(led[1]) and all(self._is_same(*each, seen) for each in zip(*led))
            return (
                before.keys() == now.keys()
                and same_targets
                and all(self._is_same(before[name], now[name], seen) for name in now)
            )
        if isinstance(before, list) and isinstance(now, list):
            return len(before) == len(now) and all(self._is_same(*each, seen) for each in zip(before, now))
        return type(before) is type(now) and bool(before == now)

    # -- objects

    def _properties(self, before: Mapping[str, Any], now: Mapping[str, Any], path: str) -> Iterator[str]:
        self._left -= _STEPS_OF_PATTERN * sum(len(one.get("patternProperties", ())) for one in (before, now))
        self._step()
        old, new = Properties.of(before), Properties.of(now)
        for name in dict.fromkeys((*old.named, *new.named)):
            self._left -= len(old.by_pattern) + len(new.by_pattern)
            yield from self._property(name, old, new, f"{path}/properties/{name}")
        for pattern, one in new.by_pattern.items():
            if pattern not in old.by_pattern:
                for source in (old.rest, *old.by_pattern.values()):
                    yield from self.compare(source, one, f"{path}/patternProperties/{pattern}")
        for pattern, one in old.by_pattern.items():
            yield from self.compare(one, new.by_pattern.get(pattern, new.rest), f"{path}/patternProperties/{pattern}")
        yield from self._rest(old.rest, new.rest, "ADDITIONAL_PROPERTIES", f"{path}/additionalProperties")
        required = set(before.get("required", ())) if isinstance(before.get("required"), list) else set()
        for name in now.get("required", ()) if isinstance(now.get("required"), list) else ():
            own = new.named.get(name)
            if name not in required and not (isinstance(own, dict) and "default" in own):
                is_new = name not in old.named and old.rest is False
                rule = "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL" if is_new else "REQUIRED_ATTRIBUTE_ADDED"
                yield _told(rule, f"only the reader requires {name}, which has no default", f"{path}/required/{name}")

    def _property(self, name: str, old: Properties, new: Properties, path: str) -> Iterator[str]:
        before, now = self._all(old.of_writer(name)), self._all(new.of_reader(name))
        found = self.compare(before, now, path)
        if not found:
            return
        if name in old.named and name in new.named:
            yield from found
        elif name in new.named:
            rule, what = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "does not cover"
            if before is True or before == {}:
                rule, what = "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", "may have anything as"
            yield _told(rule, f"the writer's content model {what} the reader's property {name}", path)
        else:
            rule = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            if now is False:
                rule = "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
            yield _told(rule, f"the reader's content model has no place for the writer's property {name}", path)

    def _rest(self, before: Any, now: Any, rule: str, path: str) -> Iterator[str]:
        found = self.compare(before, now, path)
        if found and now is False:
            yield _told(f"{rule}_REMOVED", "the writer may have more, the reader takes no more", path)
        elif found and (before is True or before == {}):
            yield _told(f"{rule}_NARROWED", "the writer may have anything more, the reader takes some only", path)
        else:
            yield from found

    # -- arrays

    def _items(self, before: Mapping[str, Any], now: Mapping[str, Any], path: str) -> Iterator[str]:
        old, new = Items.of(before), Items.of(now)
        for number in range(max(len(old.first), len(new.first))):
            at = f"{path}/items/{number}"
            found = self.compare(old.at(number), new.at(number), at)
            if found and number >= len(old.first):
                is_open = old.rest is True or old.rest == {}
                model = "TO_OPEN_CONTENT_MODEL" if is_open else "NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
                yield _told(f"ITEM_ADDED_{model}", f"the writer may have another item {number}", at)
            elif found and number >= len(new.first):
                is_closed = new.rest is False
                model = "FROM_CLOSED_CONTENT_MODEL" if is_closed else "NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
                yield _told(f"ITEM_REMOVED_{model}", f"the reader has no place for item {number}", at)
            else:
                yield from found
        if old.first or new.first:
            yield from self._rest(old.rest, new.rest, "ADDITIONAL_ITEMS", f"{path}/additionalItems")
        else:
            yield from self.compare(old.rest, new.rest, f"{path}/items")


def _unknown_keywords(schema: JsonSchema) -> dict[int, list[str]]:
    """The later keywords that stand in objects of a schema and its references, where its draft knows none, by `id`."""
    unknown = [one for one in _LATER_KEYWORDS if one not in schema.validator.VALIDATORS]
    found: dict[int, list[str]] = {}
    left = [schema.root, *schema.documents.values()] if unknown else []
    while left:
        one = left.pop()
        if isinstance(one, dict):
            here = [keyword for keyword in unknown if keyword in one]
            if here:
                found[id(one)] = here
            left += one.values()
        elif isinstance(one, list):
            left += one
    return found


def _told(rule: str, sentence: str, path: str) -> str:
    return f"{rule}: {sentence} (at {path if path != '#' else '#/'})"
