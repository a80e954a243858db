"""The small changes that code mutation makes to a module: one edit of its syntax tree each.

Not edited are annotations, decorators, docstrings, messages, what `raise` is given, log lines, and the statements that
observe without deciding (`invariant`, `sometimes`). A removed statement becomes `if 0: statement`, and a removed value
`None if 1 else value`. So the function keeps its local and free variables, and its code can be put into the function
that has already been imported.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
"""An ordering has its other boundary first, then its negation."""
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
SWAPPED_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
OBSERVERS = {"invariant", "sometimes", "log", "logger", "logging", "warnings"}
"""Calls of these names, or of their methods, are left as they are."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_AROUND_CONSTANTS = (ast.expr, ast.keyword, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)
_UNEDITED_FIELDS = {"annotation", "returns", "decorator_list", "type_comment", "type_params", "bases"}


@dataclass(slots=True)
class Edit:
    """One change of a tree: the child `field` (at `position`, if it is a list) of `parent` becomes `replacement`."""

    parent: ast.AST
    field: str
    position: int | None
    replacement: ast.AST
    kind: str
    before: str
    after: str
    function: str
    """The qualified name of the outermost function around it; empty where the code runs when the module is imported."""
    function_line: int
    lines: tuple[int, int]
    """The first and the last line of what is changed."""
    statement_line: int
    """The first line of the statement around it."""

    def apply(self) -> None:
        """Change the tree."""
        if self.position is None:
            setattr(self.parent, self.field, self.replacement)
        else:
            getattr(self.parent, self.field)[self.position] = self.replacement


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the walk is."""

    parent: ast.AST
    field: str
    position: int | None
    function: str
    function_line: int
    classes: tuple[str, ...]
    statement_line: int


def edits_of(tree: ast.Module) -> list[Edit]:
    """All edits of a module, in the order of its source."""
    return list(_children(tree, _Place(tree, "", None, "", 0, (), 0)))


def names_of(edits: list[Edit]) -> list[str]:
    """A name for each edit that is unique in its module and does not depend on the numbers of lines."""
    seen: Counter[str] = Counter()
    names = []
    for edit in edits:
        name = f"{edit.function or 'on import'}: {edit.before} => {edit.after}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return names


def mutated_tree(source: str, number: int, name: str | None = None) -> ast.Module:
    """The tree of `source` with its edit `number` applied. Raises ValueError if that edit has another name."""
    tree = ast.parse(source)
    edits = edits_of(tree)
    if name is not None and (number >= len(edits) or names_of(edits)[number] != name):
        raise ValueError(f"the source has changed: it has no mutant {number} named {name}")
    edits[number].apply()
    return ast.fix_missing_locations(tree)


def _children(node: ast.AST, place: _Place) -> Iterator[Edit]:
    for field, value in ast.iter_fields(node):
        if field in _UNEDITED_FIELDS or (isinstance(node, ast.ClassDef) and field == "keywords"):
            continue
        for position, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if isinstance(child, ast.AST):
                line = child.lineno if isinstance(child, ast.stmt) else place.statement_line
                here = _Place(node, field, position, place.function, place.function_line, place.classes, line)
                yield from _edits(child, here)


def _edits(node: ast.AST, place: _Place) -> Iterator[Edit]:
    if _is_left_as_it_is(node, place):
        return
    yield from _own_edits(node, place)
    if isinstance(node, ast.Raise | ast.JoinedStr):
        return
    if isinstance(node, ast.ClassDef):
        place = _Place(node, "", None, place.function, place.function_line, (*place.classes, node.name), 0)
    elif isinstance(node, _FUNCTIONS):
        yield from _children(node.args, place)
        if not place.function:
            line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            place = _Place(node, "", None, ".".join((*place.classes, node.name)), line, (), 0)
        body = ast.Module(node.body, [])
        for edit in _children(body, place):
            if edit.parent is body:
                edit.parent = node
            yield edit
        return
    yield from _children(node, place)


def _is_left_as_it_is(node: ast.AST, place: _Place) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or _is_observer(node.value)
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(node, _FUNCTIONS):
        overload = any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list)
        return overload or node.name in ("__repr__", "__str__")
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return not place.function and _is_typing(node)
    return isinstance(node, ast.Import | ast.ImportFrom)


def _is_typing(node: ast.Assign | ast.AnnAssign) -> bool:
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.annotation) == "TypeAlias"
    value = node.value
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in ("TypeVar", "ParamSpec", "logging.getLogger")
    return isinstance(value, ast.Subscript) or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr))


def _is_observer(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    names = ast.unparse(node.func).replace("_", "").split(".")
    return any(name in OBSERVERS for name in names)


def _own_edits(node: ast.AST, place: _Place) -> Iterator[Edit]:
    if isinstance(node, ast.expr):
        for kind, replacement in _changed_expressions(node, place):
            yield _edit(node, place, kind, replacement)
    elif isinstance(node, ast.stmt):
        yield from _changed_statements(node, place)


def _changed_expressions(node: ast.expr, place: _Place) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Compare):
        for number, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                ops = [*node.ops[:number], other(), *node.ops[number + 1 :]]
                yield "comparison", ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BoolOp):
        other_op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and, or", ast.BoolOp(other_op, node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "dropped not", node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _is_text(node.left):
        yield "arithmetic", ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield "constant", ast.Constant(not node.value)
        elif isinstance(node.value, int | float):
            yield "constant", ast.Constant(node.value + 1)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SWAPPED_FUNCTIONS:
        yield "function", ast.Call(ast.Name(SWAPPED_FUNCTIONS[node.func.id], ast.Load()), node.args, node.keywords)
    if place.field == "test" and not isinstance(place.parent, ast.While) and _is_plain(node):
        yield "condition", ast.UnaryOp(ast.Not(), node)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _is_plain(node: ast.expr) -> bool:
    """No edit of its own negates it."""
    return isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.NamedExpr | ast.Await)


def _changed_statements(node: ast.stmt, place: _Place) -> Iterator[Edit]:
    if isinstance(node, ast.Return) and node.value is not None:
        if not isinstance(node.value, ast.Constant | ast.Compare) and not _is_not(node.value):
            nothing = ast.IfExp(ast.Constant(1), ast.Constant(None), node.value)
            yield _edit(node, place, "returned value", ast.Return(nothing), after="return None")
    elif place.function and (
        isinstance(node, ast.Expr | ast.Raise | ast.AugAssign | ast.Delete | ast.Continue | ast.Break | ast.Return)
        or (isinstance(node, ast.Assign) and not all(isinstance(target, ast.Name) for target in node.targets))
    ):
        removed = ast.If(ast.Constant(0), [node], [])
        yield _edit(node, place, "removed statement", removed, after="nothing")
    if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        other = ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
        yield _edit(node, place, "arithmetic", other)


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _edit(
    node: ast.expr | ast.stmt, place: _Place, kind: str, replacement: ast.expr | ast.stmt, after: str | None = None
) -> Edit:
    ast.copy_location(replacement, node)
    edit = Edit(
        place.parent, place.field, place.position, replacement, kind, "", "",
        place.function, place.function_line, (node.lineno, node.end_lineno or node.lineno),
        place.statement_line or node.lineno,
    )  # fmt: skip
    if isinstance(node, ast.Constant) and isinstance(place.parent, _AROUND_CONSTANTS):
        edit.before, edit.after = _within(edit, node)
    else:
        edit.before = _one_line(node)
        edit.after = after or _one_line(replacement)
    return edit


def _within(edit: Edit, node: ast.expr) -> tuple[str, str]:
    """A constant says little without what is around it."""
    before = _one_line(edit.parent)
    edit.apply()
    after = _one_line(edit.parent)
    Edit.apply(_back(edit, node))
    return before, after


def _back(edit: Edit, node: ast.expr) -> Edit:
    return Edit(edit.parent, edit.field, edit.position, node, "", "", "", "", 0, (0, 0), 0)


def _one_line(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())
