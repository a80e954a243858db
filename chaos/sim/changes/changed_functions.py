"""Which functions have changed since a commit, as git tells."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping

_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")
_GONE = "/dev/null"
"""What a diff names instead of a file that is there no more."""


class NoChangesError(Exception):
    """What has changed cannot be told; the sentence says why."""


def changed_functions(directory: str, revision: str) -> set[str]:
    """The functions of a checkout's Python files that differ from the commit, such as `raft/log.py:RaftLog.append`.

    A constant stands for the functions of its file that name it. Where nothing else of it has changed, another line of
    a class outside of its methods stands for the class, and one outside of classes and functions for the file, as
    `raft/log.py:RaftLog` and `raft/log.py:`. Files that git does not know yet are left out, as what is new in them runs
    only where something else calls it. Raises `NoChangesError`.
    """
    root = _git(directory, "rev-parse", "--show-toplevel").strip()
    told = _git(root, "diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-renames", revision, "--", "*.py")
    found: set[str] = set()
    for path, lines in changed_lines(told).items():
        if path != _GONE:
            with open(os.path.join(root, path), encoding="utf-8") as file:
                source = file.read()
            found.update(f"{path}:{name}" for name in names_at(source, lines))
    return found


def changed_lines(diff: str) -> Mapping[str, set[int]]:
    """The lines of each new file that a diff without context tells of; where lines were removed, those around them."""
    lines: dict[str, set[int]] = {}
    path = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ ").removeprefix("b/")
        hunk = _HUNK.match(line)
        if hunk is not None:
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines.setdefault(path, set()).update(range(first, first + count) if count else (first, first + 1))
    return lines


def names_at(source: str, lines: Iterable[int]) -> set[str]:
    """The outermost functions, or methods with their classes, around the lines; else the class, else an empty name.

    A constant of the module stands for the functions that name it. A class is left out when lines of its methods are
    among them, and the empty name when any others are.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise NoChangesError(f"a changed file is no Python: {error}") from error
    spans = list(_spans(tree, ""))
    found: set[str] = set()
    for line in lines:
        name = _name_at(line, spans)
        users = set() if name else _users_of(_constants_at(tree, line), tree, spans)
        found |= users or {name}
    names = sorted(found)
    return {name for name in names if not any(_is_within(other, name) for other in names)}


def _is_within(name: str, around: str) -> bool:
    return name != around and (around == "" or name.startswith(f"{around}."))


def _name_at(line: int, spans: Iterable[tuple[str, int, int]]) -> str:
    """The outermost function, or method, around a line; else the class, else an empty name."""
    return max((name for name, first, last in spans if first <= line <= last), key=len, default="")


def _constants_at(module: ast.Module, line: int) -> set[str]:
    """The names that a statement of the module assigns to at this line."""
    found: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno <= line <= (node.end_lineno or node.lineno):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
    return found


def _users_of(constants: set[str], module: ast.Module, spans: Iterable[tuple[str, int, int]]) -> set[str]:
    """The outermost functions, or methods, that name one of the constants."""
    uses = [node for node in ast.walk(module) if isinstance(node, ast.Name) and node.id in constants]
    return {_name_at(node.lineno, spans) for node in uses} - {""}


def functions_of(source: str) -> Iterator[tuple[str, int, int]]:
    """Each class, method and outermost function with its first line, decorators included, and its last."""
    return _spans(ast.parse(source), "")


def _spans(parent: ast.AST, prefix: str) -> Iterator[tuple[str, int, int]]:
    for node in ast.iter_child_nodes(parent):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        yield prefix + node.name, first, node.end_lineno or node.lineno
        if isinstance(node, ast.ClassDef):
            yield from _spans(node, f"{prefix}{node.name}.")


def _git(directory: str, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", directory, *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NoChangesError("git is not installed, which tells what has changed") from None
    if done.returncode:
        raise NoChangesError(f"git cannot tell what has changed: {done.stderr.strip() or 'it failed'}")
    return done.stdout
