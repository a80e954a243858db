"""The repository lint: rules about the code base, as failing tests.

Node code runs unmodified in the deterministic simulator, so outside `runtime/` it may not touch time, randomness,
files, threads, sockets or signals by itself, nor let hash order show. Sizes are held so that files stay readable. Every
rule is itself tested below with a snippet that it must flag and one that it must not.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NODE_PACKAGES = ("security", "wire", "log", "raft", "controller", "isr", "broker", "cluster", "chaos")
ALL_PACKAGES = ("runtime", *NODE_PACKAGES, "bench", "pipeline", "registry", "rest", "console", "testkit", "cli")

# The edge of the process: these start processes, ask the terminal, or drive and judge a cluster from outside.
PROCESS_EDGE = (
    "cluster/node/process.py",
    "cluster/local/*.py",
    "cluster/doctor/*.py",
    "cluster/metrics/*.py",
    "testkit/*.py",
    "testkit/simulation/*.py",
    "wire/generate_messages.py",
    "cluster/command_line/*.py",
    "chaos/sim/changes/changed_functions.py",
    "chaos/sim/seed_runs.py",
    "chaos/sim/statements.py",
    "chaos/fuzz/*.py",
    "chaos/live/history.py",
    "chaos/live/run.py",
    "chaos/live/checker/*.py",
    "chaos/live/checker/transactions/*.py",
    "chaos/live/load/*.py",
    "chaos/live/load/transactions/*.py",
    "chaos/live/nemesis/*.py",
)

FUNCTION_LINES_MAX, FILE_LINES_MAX = 70, 600
LONG_FILES = {
    "wire/fetch.py": "requests and responses of all versions, in both directions, by hand: they are read together"
}
"""Files above the limit, each with the reason why one file is easier to read than two. The limit is a hint to look."""
FILES_PER_FOLDER_MAX = 15
CONSTRUCTOR_PARAMETERS_MAX = 7

TIME = "time is loop.time(), an explicit now_ms argument, or Runtime.clock.wall_ms()"
RANDOM = "randomness is Runtime.rng"
FILES = "files are Runtime.disk"
NETWORK = "the network is loop.create_server / loop.create_connection with protocols"
THREADS = "threads, processes and signals live in runtime/ and at the edge of the process"
ORDER = "it differs from run to run"

BANNED_MODULES = {
    "time": TIME,
    "secrets": RANDOM,
    "shutil": FILES,
    "tempfile": FILES,
    "glob": FILES,
    "io": FILES,
    "fcntl": FILES,
    "mmap": FILES,
    "socket": NETWORK,
    "select": NETWORK,
    "selectors": NETWORK,
    "ssl": NETWORK,
    "threading": THREADS,
    "multiprocessing": THREADS,
    "concurrent": THREADS,
    "subprocess": THREADS,
    "signal": THREADS,
    "uvloop": THREADS,
    "random": RANDOM,
    "os": FILES,
    "pathlib": FILES,
}
ALLOWED_IN_BANNED = {
    "random.Random",
    "os.path.join",
    "os.path.dirname",
    "os.path.basename",
    "os.path.split",
    "os.path.splitext",
    "os.path.normpath",
    "os.strerror",
    "socket.gaierror",
    "pathlib.PurePath",
    "pathlib.PurePosixPath",
    "io.BytesIO",
}
BANNED_NAMES = {
    "asyncio.start_server": NETWORK,
    "asyncio.open_connection": NETWORK,
    "asyncio.StreamReader": NETWORK,
    "asyncio.to_thread": THREADS,
    "asyncio.run": THREADS,
    "asyncio.create_subprocess_exec": THREADS,
    "asyncio.create_subprocess_shell": THREADS,
    "uuid.uuid4": RANDOM,
    "uuid.uuid1": RANDOM,
    "datetime.datetime.now": TIME,
    "datetime.datetime.utcnow": TIME,
    "datetime.datetime.today": TIME,
    "datetime.date.today": TIME,
    "os.urandom": RANDOM,
}
BANNED_BUILTINS = {"open": FILES, "id": ORDER, "hash": ORDER, "input": THREADS}
ITERATING = ("list", "tuple", "enumerate", "iter", "next", "zip", "map")
BANNED_METHODS = {"run_in_executor": THREADS, "add_signal_handler": THREADS, "set_default_executor": THREADS}


@dataclass(frozen=True)
class Finding:
    """One breach, with the way out."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


Rule = Callable[[ast.Module, str], Iterator[Finding]]


# -- banned calls


def banned_calls(tree: ast.Module, path: str) -> Iterator[Finding]:
    """Uses of time, randomness, files, sockets, threads and the like, under whatever name they were imported."""
    names = _imported_names(tree)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            for alias in node.names:
                yield from _judge(f"{node.module}.{alias.name}", node.lineno, path)
        elif isinstance(node, ast.Attribute) and id(node) not in inner:
            dotted = _dotted(node, names)
            if dotted is not None:
                yield from _judge(dotted, node.lineno, path)
            if node.attr in BANNED_METHODS:
                yield Finding(path, node.lineno, f"{node.attr}: {BANNED_METHODS[node.attr]}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BANNED_BUILTINS:
            yield Finding(path, node.lineno, f"{node.func.id}(): {BANNED_BUILTINS[node.func.id]}")


def _judge(dotted: str, line: int, path: str) -> Iterator[Finding]:
    if dotted in BANNED_NAMES:
        yield Finding(path, line, f"{dotted}: {BANNED_NAMES[dotted]}")
    elif dotted.split(".")[0] in BANNED_MODULES and dotted not in ALLOWED_IN_BANNED and dotted != "os.path":
        yield Finding(path, line, f"{dotted}: {BANNED_MODULES[dotted.split('.')[0]]}")


def _imported_names(tree: ast.Module) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.expr, names: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, names)
        return None if base is None else f"{base}.{node.attr}"
    return None


# -- asserts and sets


def no_asserts(tree: ast.Module, path: str) -> Iterator[Finding]:
    """`python -O` removes them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield Finding(path, node.lineno, "assert: use runtime.invariants.invariant, which -O does not remove")


def no_set_iteration(tree: ast.Module, path: str) -> Iterator[Finding]:
    """Iteration over what is plainly a set: a display, set(...), or a name or attribute declared as one."""
    for scope in ast.walk(tree):
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            names = _declared_sets(scope)
            yield from _iterations(scope, names, path)
        elif isinstance(scope, ast.ClassDef):
            attributes = {name for name in _declared_sets(scope) if name.startswith("self.")}
            yield from _iterations(scope, attributes, path)
    yield from _iterations(tree, set(), path)


def _iterations(scope: ast.AST, names: set[str], path: str) -> Iterator[Finding]:
    for node in ast.walk(scope):
        for iterated in _iterated(node):
            if _is_set(iterated, names):
                text = ast.unparse(iterated)
                message = f"iterates over the set {text}: hash order differs from run to run; use a dict or sorted()"
                yield Finding(path, iterated.lineno, message)


def _iterated(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield node.iter
    elif isinstance(node, ast.Starred):
        yield node.value
    elif isinstance(node, ast.Call) and node.args:
        function = node.func
        if isinstance(function, ast.Name) and function.id in ITERATING:
            yield from node.args
        elif isinstance(function, ast.Attribute) and function.attr in ("join", "extend"):
            yield node.args[0]


def _is_set(node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("set", "frozenset")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return any(_is_set(side, names) or _is_keys(side) for side in (node.left, node.right))
    return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in names


def _is_keys(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"


def _declared_sets(scope: ast.AST) -> set[str]:
    found: set[str] = set()
    other: set[str] = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.AnnAssign):
            (found if _is_set_type(node.annotation) else other).add(ast.unparse(node.target))
        elif isinstance(node, ast.arg) and node.annotation is not None:
            (found if _is_set_type(node.annotation) else other).add(node.arg)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                (found if _is_set(node.value, set()) else other).add(ast.unparse(target))
    return found - other


def _is_set_type(annotation: ast.expr) -> bool:
    base = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return isinstance(base, ast.Name) and base.id in ("set", "frozenset", "Set", "AbstractSet", "MutableSet")


# -- sizes


def short_functions(tree: ast.Module, path: str) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield Finding(path, node.lineno, f"{node.name} has {lines} lines; at most {FUNCTION_LINES_MAX}")


def few_constructor_parameters(tree: ast.Module, path: str) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            arguments = node.args
            count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - 1
            if count > CONSTRUCTOR_PARAMETERS_MAX:
                message = f"constructor with {count} parameters; at most {CONSTRUCTOR_PARAMETERS_MAX}: bundle them"
                yield Finding(path, node.lineno, message)


def short_file(source: str, path: str) -> Iterator[Finding]:
    lines = source.count("\n")
    if lines > FILE_LINES_MAX and path not in LONG_FILES:
        yield Finding(
            path, lines, f"{lines} lines; at most {FILE_LINES_MAX}: split it, or give the reason in LONG_FILES"
        )


def no_relative_imports(tree: ast.Module, path: str) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield Finding(path, node.lineno, "tests import nothing from other tests: put it into tests/support")


# -- words

DOCUMENTED = ALL_PACKAGES
"""Packages whose public names all have a docstring, and whose comments use no banned word."""

BANNED_WORDS = re.compile(
    r"\b(whoever|lest|wish|wishes|wished|patience|upkeep|housekeeping|pacing|suspects|lingering|torment\w*"
    r"|the house|rooms?|turns? of the loop|reshap\w+|in circles)\b",
    re.IGNORECASE,
)


def public_names_have_docstrings(tree: ast.Module, path: str) -> Iterator[Finding]:
    """Public classes, functions and methods without a docstring. Overloads, setters and dunder methods need none."""
    yield from _undocumented(tree, path)


def _undocumented(scope: ast.Module | ast.ClassDef, path: str) -> Iterator[Finding]:
    for node in scope.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        exempt = any(ast.unparse(decorator).endswith(("overload", ".setter")) for decorator in node.decorator_list)
        if not exempt and ast.get_docstring(node) is None:
            yield Finding(path, node.lineno, f"{node.name} has no docstring: say what it does, units, errors, source")
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(node, path)


def plain_words(source: str, path: str) -> Iterator[Finding]:
    """Private vocabulary in comments and docstrings; see the glossary in ARCHITECTURE.md for the words to use."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and text.startswith('"""')):
            for match in BANNED_WORDS.finditer(text):
                line = token.start[0] + text.count("\n", 0, match.start())
                yield Finding(path, line, f"{match.group()!r}: use the word of Kafka or Raft, or plain English")


# -- the repository itself


def sources(packages: tuple[str, ...], excluded: tuple[str, ...] = ()) -> list[Path]:
    return [
        path
        for package in packages
        for path in sorted((ROOT / package).rglob("*.py"))
        if not any(path.relative_to(ROOT).match(pattern) for pattern in excluded)
    ]


def breaches(rule: Rule, paths: list[Path]) -> list[str]:
    found: dict[str, None] = {}
    for path in paths:
        for finding in rule(ast.parse(path.read_text()), str(path.relative_to(ROOT))):
            found[str(finding)] = None
    return list(found)


def breaches_of_text(rule: Callable[[str, str], Iterator[Finding]], paths: list[Path]) -> list[str]:
    return [str(finding) for path in paths for finding in rule(path.read_text(), str(path.relative_to(ROOT)))]


def none(found: list[str]) -> None:
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_node_code_touches_the_world_only_through_runtime() -> None:
    none(breaches(banned_calls, sources(NODE_PACKAGES, PROCESS_EDGE)))


def test_node_code_never_shows_hash_order() -> None:
    none(breaches(no_set_iteration, sources(NODE_PACKAGES)))


@pytest.mark.parametrize("rule", [no_asserts, short_functions, few_constructor_parameters])
def test_every_package_keeps(rule: Rule) -> None:
    none(breaches(rule, sources(ALL_PACKAGES)))


def test_files_stay_readable() -> None:
    none(breaches_of_text(short_file, sources((*ALL_PACKAGES, "tests"))))


def test_documented_packages_explain_every_public_name() -> None:
    none(breaches(public_names_have_docstrings, sources(DOCUMENTED)))


def test_documented_packages_use_plain_words() -> None:
    none(breaches_of_text(plain_words, sources(DOCUMENTED)))


def test_no_test_imports_another_test() -> None:
    none(breaches(no_relative_imports, sources(("tests",))))


def test_folders_are_maps() -> None:
    counts = Counter(path.parent for path in sources((*ALL_PACKAGES, "tests")) if path.name != "__init__.py")
    none(
        [
            f"{folder.relative_to(ROOT)}: {count} files side by side; at most {FILES_PER_FOLDER_MAX}"
            for folder, count in counts.items()
            if count > FILES_PER_FOLDER_MAX
        ]
    )


def test_raftwerk_links_every_package() -> None:
    for package in ALL_PACKAGES:
        link = ROOT / "raftwerk" / package
        assert link.is_symlink(), f"raftwerk/{package} must be a symlink to ../{package}"
        assert link.resolve() == ROOT / package


# -- the rules are themselves tested


def flagged(rule: Rule, snippet: str) -> list[str]:
    return [finding.message for finding in rule(ast.parse(snippet), "snippet.py")]


@pytest.mark.parametrize(
    "snippet",
    [
        "import time\ntime.time()",
        "import time as t\nt.monotonic()",
        "from time import perf_counter as now\nnow()",
        "import time\ntime.sleep(1)",
        "import random\nrandom.random()",
        "from random import choice",
        "import random\nrandom.SystemRandom()",
        "open('x')",
        "import os\nos.replace('a', 'b')",
        "import os\nos.path.exists('a')",
        "from os import path\npath.getsize('a')",
        "import os\nos.environ['A']",
        "from pathlib import Path",
        "import socket\nsocket.socket()",
        "import threading\nthreading.Thread()",
        "import subprocess\nsubprocess.run(['ls'])",
        "from concurrent.futures import ThreadPoolExecutor",
        "import asyncio\nasyncio.start_server(None)",
        "from asyncio import open_connection",
        "import asyncio\nasyncio.to_thread(print)",
        "async def f(loop): await loop.run_in_executor(None, f)",
        "import uuid\nuuid.uuid4()",
        "from uuid import uuid1\nuuid1()",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime\ndatetime.utcnow()",
        "import secrets\nsecrets.token_bytes(16)",
        "import signal\nsignal.SIGTERM",
        "def f(loop): loop.add_signal_handler(15, f)",
        "id(object())",
        "hash('a')",
    ],
)
def test_banned_calls_are_flagged(snippet: str) -> None:
    assert flagged(banned_calls, snippet)


@pytest.mark.parametrize(
    "snippet",
    [
        "import random\ndef f(rng: random.Random) -> float: return rng.random()",
        "from random import Random",
        "import os\nos.path.join('a', 'b')",
        "from ..log import config\nconfig.time.time()",
        "import asyncio\nasyncio.get_running_loop().time()",
        "def f(disk): disk.open('x', create=True)",
        "import uuid\nuuid.UUID(int=1)",
        "from datetime import datetime\ndatetime.fromtimestamp(0)",
        "def f(timer): timer.time = 1; timer.signal.random()",
    ],
)
def test_what_nodes_need_is_not_flagged(snippet: str) -> None:
    assert flagged(banned_calls, snippet) == []


def test_a_finding_names_the_way_out() -> None:
    (message,) = flagged(banned_calls, "import time\ntime.monotonic()")
    assert message == f"time.monotonic: {TIME}"


def test_imports_of_other_tests_are_flagged() -> None:
    assert flagged(no_relative_imports, "from ..conftest import helper")
    assert flagged(no_relative_imports, "from support.raft.nodes import RaftNodes") == []


def test_asserts_are_flagged() -> None:
    assert flagged(no_asserts, "def f(x):\n    assert x")
    assert flagged(no_asserts, "def f(x):\n    invariant(x, 'x')") == []


@pytest.mark.parametrize(
    "snippet",
    [
        "for x in {1, 2}: pass",
        "for x in set(y): pass",
        "[x for x in frozenset(y)]",
        "{x: 1 for x in {y for y in z}}",
        "list({1, 2})",
        "','.join({'a', 'b'})",
        "print(*{1, 2})",
        "for x in set(a) - set(b): pass",
        "for x in a.keys() - b: pass",
        "def f():\n    seen = set()\n    return [x for x in seen]",
        "def f(isr: set[int]):\n    for x in isr: pass",
        "class A:\n    def __init__(self): self.x: set[int] = set()\n    def f(self):\n        for y in self.x: pass",
    ],
)
def test_iteration_over_sets_is_flagged(snippet: str) -> None:
    assert flagged(no_set_iteration, snippet)


@pytest.mark.parametrize(
    "snippet",
    [
        "for x in sorted({1, 2}): pass",
        "for x in [1, 2]: pass",
        "x in {1, 2}",
        "len(set(y)) == max({1})",
        "for x in dict.fromkeys(y): pass",
        "for x in a.keys(): pass",
        "def f():\n    seen = set()\n    seen = sorted(seen)\n    for x in seen: pass",
    ],
)
def test_ordered_iteration_is_not_flagged(snippet: str) -> None:
    assert flagged(no_set_iteration, snippet) == []


def test_long_functions_are_flagged() -> None:
    body = "    x = 1\n" * (FUNCTION_LINES_MAX - 1)
    assert flagged(short_functions, f"def f():\n{body}") == []
    assert flagged(short_functions, f"class A:\n  async def f(self):\n{body}    x = 2\n") == [
        "f has 71 lines; at most 70"
    ]


def test_long_files_are_flagged() -> None:
    assert list(short_file("x = 1\n" * FILE_LINES_MAX, "a.py")) == []
    assert list(short_file("x = 1\n" * (FILE_LINES_MAX + 1), "a.py"))


def test_wide_constructors_are_flagged() -> None:
    assert flagged(few_constructor_parameters, "class A:\n def __init__(self, a, b, c, d, *, e, f, g): pass") == []
    assert flagged(few_constructor_parameters, "class A:\n def __init__(self, a, b, c, d, *, e, f, g, h): pass")


@pytest.mark.parametrize(
    "snippet",
    [
        "def f(): pass",
        "async def f(): pass",
        "class A: pass",
        "class A:\n 'A.'\n def f(self): pass",
        "class A:\n 'A.'\n class B: pass",
    ],
)
def test_missing_docstrings_are_flagged(snippet: str) -> None:
    assert flagged(public_names_have_docstrings, snippet)


@pytest.mark.parametrize(
    "snippet",
    [
        "def _f(): pass",
        "def f():\n 'F.'\n def g(): pass",
        "class _A:\n def f(self): pass",
        "class A:\n 'A.'\n def __init__(self): pass\n def _f(self): pass",
        "class A:\n 'A.'\n @x.setter\n def x(self, value): pass",
        "@overload\ndef f(x: int) -> int: ...",
    ],
)
def test_private_names_need_no_docstring(snippet: str) -> None:
    assert flagged(public_names_have_docstrings, snippet) == []


def test_private_vocabulary_is_flagged() -> None:
    flagged_source = '"""Fine.\n\nWhoever reads.\n"""\nx = 1  # lest\n'
    assert [finding.line for finding in plain_words(flagged_source, "a.py")] == [3, 5]
    assert list(plain_words('"""Reads a room_id."""\nwhoever = "lest"\n', "a.py")) == []
