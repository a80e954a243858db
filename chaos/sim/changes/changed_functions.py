"""Which functions have changed since a commit, and which lines of them, as git tells."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")
_GONE = "/dev/null"
"""What a diff names instead of a file that is there no more."""


_NEAR_LINES = 2
"""So many lines around a changed one belong to it: what a changed condition decides about is below it."""


class NoChangesError(Exception):
    """What has changed cannot be told; the sentence says why."""


def changed_functions(directory: str, revision: str) -> set[str]:
    """The functions of a checkout's Python files that differ from the commit, such as `raft/log.py:RaftLog.append`.

    Where nothing else of it has changed, a line of a class outside of its methods stands for the class, and one outside
    of classes and functions for the file, as `raft/log.py:RaftLog` and `raft/log.py:`. Files that git does not know yet
    are left out, as what is new in them runs only where something else calls it. Raises `NoChangesError`.
    """
    return {
        f"{path}:{name}"
        for path, source, lines in _changed_files(directory, revision)
        for name in names_at(source, lines)
    }


def changed_code(directory: str, revision: str) -> set[str]:
    """As `changed_functions`, and for each changed line and those near it `raft/log.py:Log.append#` with its key.

    Raises `NoChangesError`.
    """
    found = changed_functions(directory, revision)
    for path, source, lines in _changed_files(directory, revision):
        found.update(f"{path}:{name}#{key}" for name, keys in keys_near(source, lines).items() for key in keys)
    return found


def _changed_files(directory: str, revision: str) -> Iterator[tuple[str, str, set[int]]]:
    """The path, the text and the changed lines of each file that is there."""
    root = _git(directory, "rev-parse", "--show-toplevel").strip()
    told = _git(root, "diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-renames", revision, "--", "*.py")
    for path, lines in changed_lines(told).items():
        if path != _GONE:
            with open(os.path.join(root, path), encoding="utf-8") as file:
                yield path, file.read(), lines


def line_key(text: str) -> str:
    """A short name of a line by its text, so that it stays what it is when lines before it change."""
    return f"{zlib.crc32(text.strip().encode()) & 0xFFFF:04x}"


def keys_near(source: str, lines: Iterable[int]) -> Mapping[str, set[str]]:
    """For each outermost function or method, the keys of its lines that are among these or near them."""
    texts = source.splitlines()
    spans = list(functions_of(source))
    found: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        around = max(
            ((len(name), name, first, last) for name, first, last in spans if first <= line <= last), default=None
        )
        if around is None:
            continue
        _, name, first, last = around
        near = range(max(first, line - _NEAR_LINES), min(last, line + _NEAR_LINES) + 1)
        found[name].update(line_key(texts[number - 1]) for number in near)
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

    A class is left out when lines of its methods are among them, and the empty name when any others are.
    """
    try:
        spans = list(functions_of(source))
    except SyntaxError as error:
        raise NoChangesError(f"a changed file is no Python: {error}") from error
    found: set[str] = set()
    for line in lines:
        around = [(len(name), name) for name, first, last in spans if first <= line <= last]
        found.add(max(around)[1] if around else "")
    names = sorted(found)
    return {name for name in names if not any(_is_within(other, name) for other in names)}


def _is_within(name: str, around: str) -> bool:
    return name != around and (around == "" or name.startswith(f"{around}."))


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
