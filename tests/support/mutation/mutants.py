"""A mutant of the code: a module with one edit, and how a process comes to run it."""

from __future__ import annotations

import ast
import gc
import hashlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from support.mutation.source_edits import edits_of, mutated_tree, names_of

FunctionKey = tuple[str, str, int]
"""File, qualified name, first line."""


@dataclass(frozen=True, slots=True)
class CodeMutant:
    """One edit of one module. `module` is a path such as raft/quorum/majority.py."""

    module: str
    number: int
    name: str
    kind: str
    function: str
    function_line: int
    lines: tuple[int, int]
    statement_line: int
    digest: str
    """Of the source of the function around it. What was found out about a function that has changed counts no more."""

    @property
    def key(self) -> str:
        """The name in the ledger and in the list of equivalent mutants."""
        return f"{self.module} {self.name}"


def mutants_of(root: Path, module: str) -> list[CodeMutant]:
    """All mutants of a module, in the order of its source."""
    source = (root / module).read_text()
    tree = ast.parse(source)
    edits = edits_of(tree)
    digests = _digests(tree)
    return [
        CodeMutant(
            module, number, name, edit.kind, edit.function, edit.function_line, edit.lines, edit.statement_line,
            digests.get(edit.function_line) or _digest(name),
        )
        for number, (edit, name) in enumerate(zip(edits, names_of(edits)))
    ]  # fmt: skip


def _digests(tree: ast.Module) -> dict[int, str]:
    return {
        min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]): _digest(ast.unparse(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


# -- in a process that has imported the module


def functions_by_place(root: Path, package: str) -> dict[FunctionKey, list[FunctionType]]:
    """The functions of this process that were defined in modules of the package."""
    gc.unfreeze()  # a frozen object is not listed, and the tests of this repository freeze all that they have imported
    found: dict[FunctionKey, list[FunctionType]] = {}
    prefix = f"{root / package}/"
    for value in gc.get_objects():
        if isinstance(value, FunctionType):
            path = real_path(value.__code__.co_filename)
            if path.startswith(prefix):
                key = (path.removeprefix(f"{root}/"), value.__code__.co_qualname, value.__code__.co_firstlineno)
                found.setdefault(key, []).append(value)
    return found


@cache
def real_path(path: str) -> str:
    """The path without symbolic links: packages are imported through links."""
    return str(Path(path).resolve()) if path.startswith("/") else path


def put_in_place(root: Path, mutant: CodeMutant, functions: Mapping[FunctionKey, Sequence[FunctionType]]) -> bool:
    """Give the functions of this process the mutated code. False if that is not possible."""
    imported = functions.get((mutant.module, mutant.function, mutant.function_line), ())
    if not mutant.function or not imported:
        return False
    source = (root / mutant.module).read_text()
    compiled = compile(
        mutated_tree(source, mutant.number, mutant.name), imported[0].__code__.co_filename, "exec", dont_inherit=True
    )
    for code in _codes(compiled):
        if code.co_qualname == mutant.function and code.co_firstlineno == mutant.function_line:
            if any(code.co_freevars != function.__code__.co_freevars for function in imported):
                return False
            for function in imported:
                function.__code__ = code
            return True
    return False


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


# -- in a process that has not imported the module


class MutatingFinder(MetaPathFinder):
    """Finds one module with its mutated source, under whatever name it is imported."""

    def __init__(self, root: Path, mutant: CodeMutant) -> None:
        self._path = str(root / mutant.module)
        self._tree = mutated_tree((root / mutant.module).read_text(), mutant.number, mutant.name)
        path = Path(mutant.module)
        self._last_name = path.parent.name if path.stem == "__init__" else path.stem

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's spec, with a loader that compiles the mutated tree. None for all other modules."""
        if fullname.rpartition(".")[2] != self._last_name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None or real_path(spec.origin) != self._path:
            return None
        loader = _MutatingLoader(fullname, spec.origin, self._tree)
        locations = spec.submodule_search_locations
        return importlib.util.spec_from_file_location(
            fullname, spec.origin, loader=loader, submodule_search_locations=locations
        )


class _MutatingLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, tree: ast.Module) -> None:
        super().__init__(name, path)
        self._tree = tree

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._tree, self.path, "exec", dont_inherit=True)


def import_mutated(root: Path, mutant: CodeMutant) -> None:
    """From now on an import of the mutant's module finds the mutant."""
    sys.meta_path.insert(0, MutatingFinder(root, mutant))
