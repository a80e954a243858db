"""The tool that mutates code: what it changes, and that it finds out which changes a test notices."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from pathlib import Path

import pytest
from support.mutation.__main__ import common_folder, in_order, modules_of, quickest
from support.mutation.fresh_process import measured, results_of
from support.mutation.ledger import Ledger, equivalent_mutants
from support.mutation.mutant_runs import MutantResult, TestCoverage, covering
from support.mutation.mutants import CodeMutant, functions_by_place, mutants_of
from support.mutation.source_edits import edits_of, mutated_tree, names_of


def changes(source: str) -> list[str]:
    return [f"{edit.before} => {edit.after}" for edit in edits_of(ast.parse(source))]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("return a < b", ["a < b => a <= b", "a < b => a >= b"]),
        ("return a == b", ["a == b => a != b"]),
        ("return a in b", ["a in b => a not in b"]),
        ("return not a", ["not a => a"]),
        ("x = a and b", ["a and b => a or b"]),
        ("x = a + b", ["a + b => a - b"]),
        ("x = a + 1", ["a + 1 => a - 1", "a + 1 => a + 2"]),
        ("x = min(a, b)", ["min(a, b) => max(a, b)"]),
        ("return False", ["return False => return True"]),
        ("return a", ["return a => return None"]),
        ("self.a = b", ["self.a = b => nothing"]),
        ("a += b", ["a += b => nothing", "a += b => a -= b"]),
        ("self.clear()", ["self.clear() => nothing"]),
        ("raise KeyError(1 + 2)", ["raise KeyError(1 + 2) => nothing"]),
        ("if a:\n  x = b", ["a => not a"]),
    ],
)
def test_each_kind_of_change(statement: str, expected: list[str]) -> None:
    body = "\n".join(f"  {line}" for line in statement.splitlines())
    assert changes(f"def f(self, a, b):\n{body}") == expected


@pytest.mark.parametrize(
    "statement",
    [
        "'''A docstring.'''",
        "invariant(a < b, 'in order')",
        "sometimes(a < b, 'a rare branch')",
        "_log.info('%d', a + 1)",
        "import os",
        "x: Literal[1] = a",
        "x = f'{a + 1}'",
    ],
)
def test_what_observes_or_describes_is_left_as_it_is(statement: str) -> None:
    assert changes(f"def f(a, b):\n  {statement}") == []


def test_names_do_not_depend_on_lines_and_are_unique() -> None:
    source = "def f(a):\n  g(a < 1)\n  h(a < 1)"
    names = names_of(edits_of(ast.parse(source)))
    assert names == names_of(edits_of(ast.parse(f"\n\n{source}")))
    assert len(set(names)) == len(names)
    assert "f: a < 1 => a <= 1 #2" in names


def test_a_change_of_the_code_moves_no_other_mutant_in_the_order(tmp_path: Path) -> None:
    """So a sample that is tried again after it has mostly the mutants of before."""
    (tmp_path / "module.py").write_text("def f(a, b):\n  return a < b and b < 9")
    before = [mutant.name for mutant in in_order(mutants_of(tmp_path, "module.py"), 1)]
    (tmp_path / "module.py").write_text("def e(a):\n  return a + 1\n\ndef f(a, b):\n  return a < b and b < 9")
    after = [mutant.name for mutant in in_order(mutants_of(tmp_path, "module.py"), 1)]
    assert [name for name in after if name in before] == before
    assert len(after) > len(before)
    assert before != [mutant.name for mutant in mutants_of(tmp_path, "module.py")]


def test_a_mutant_of_a_source_that_has_changed_is_not_run() -> None:
    source = "def f(a):\n  return a < 1"
    mutated_tree(source, 0, "f: a < 1 => a <= 1")
    for other in ("def f(a):\n  return a < 2", "def f(a):\n  return a"):
        with pytest.raises(ValueError, match="the source has changed"):
            mutated_tree(other, 0, "f: a < 1 => a <= 1")


def test_functions_that_the_collector_leaves_alone_are_found() -> None:
    gc.freeze()
    place = ("test_code_mutation.py", changes.__qualname__, changes.__code__.co_firstlineno)
    try:
        assert functions_by_place(Path(__file__).parents[1], "mutation")[f"mutation/{place[0]}", *place[1:]] == [
            changes
        ]
    finally:
        gc.freeze()


def test_one_edit_is_applied() -> None:
    names: dict[str, object] = {}
    exec(compile(mutated_tree("def f(a):\n  return a < 1", 0), "example", "exec"), names)
    function = names["f"]
    assert callable(function)
    assert function(1)


MODULE = """
LIMIT = 3
DEFAULT = 7
NAMES = frozenset("ab") - {"b"}

class Counter:
    def __init__(self):
        self.value = 0

    @property
    def is_full(self):
        return self.value >= LIMIT

    def add(self):
        while True:
            if self.is_full:
                return False
            self.value += 1
            return True

    def never_called(self):
        return self.value

    def hardly_tested(self):
        return self.value > 0
"""
TESTS = '''
from mutated_example.counter import DEFAULT, Counter

def test_three_are_added():
    counter = Counter()
    assert [counter.add() for _ in range(5)] == [True, True, True, False, False]

def test_nothing():
    Counter().hardly_tested()

def test_the_default():
    assert DEFAULT == 7

def test_fails_by_itself():
    assert False
'''  # fmt: skip


def example(root: Path) -> Path:
    """A package with tests. The tests notice some changes of it and not others."""
    (root / "mutated_example").mkdir()
    (root / "mutated_example" / "__init__.py").touch()
    (root / "mutated_example" / "counter.py").write_text(MODULE)
    (root / "test_counter.py").write_text(TESTS)
    (root / "conftest.py").write_text(f"import sys\nsys.path.insert(0, {str(root)!r})\n")
    return root


def test_the_tests_that_run_a_changed_line_decide(tmp_path: Path) -> None:
    root = example(tmp_path)
    coverage = measured(root, "mutated_example", ["test_counter.py"])
    assert {test.node_id.split("::")[1]: test.passed for test in coverage} == {
        "test_three_are_added": True,
        "test_nothing": True,
        "test_the_default": True,
        "test_fails_by_itself": False,
    }
    mutants = {mutant.name: mutant for mutant in mutants_of(root, "mutated_example/counter.py")}
    expected = {
        "on import: LIMIT = 3 => LIMIT = 4": "killed",
        "on import: DEFAULT = 7 => DEFAULT = 8": "killed",
        "on import: frozenset('ab') - {'b'} => frozenset('ab') + {'b'}": "killed",  # it cannot be imported
        "Counter.is_full: self.value >= LIMIT => self.value > LIMIT": "killed",
        "Counter.add: self.value += 1 => nothing": "killed",
        "Counter.add: return True => nothing": None,
        "Counter.hardly_tested: self.value > 0 => self.value >= 0": "survived",
    }
    work = [(mutants[name], covering(mutants[name], coverage)) for name in expected if name in mutants]
    results = {one.key: one for one in results_of(root, "mutated_example", ["test_counter.py"], work)}
    tried = {mutant.name: results[mutant.key].status for mutant, _ in work}
    assert tried == {name: status for name, status in expected.items() if status is not None}
    never = mutants["Counter.never_called: return self.value => return None"]
    assert covering(never, coverage) == []


def test_a_sample_may_be_of_some_folders_of_a_package(tmp_path: Path) -> None:
    for name in ("log/recovery/replay.py", "log/state/cache.py", "log/log.py", "logging/log.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert modules_of(tmp_path, ["log/recovery"], None) == ["log/recovery/replay.py"]
    assert modules_of(tmp_path, ["log"], None, without=["log/recovery"]) == ["log/log.py", "log/state/cache.py"]
    assert modules_of(tmp_path, ["log/state", "log", "log/recovery"], "e.py") == ["log/state/cache.py"]
    with pytest.raises(ValueError, match="no module in log/recover"):
        modules_of(tmp_path, ["log/recover"], None)


def test_the_tests_of_folders_are_measured_in_the_package_that_they_share() -> None:
    assert common_folder(["log/recovery"]) == "log/recovery"
    assert common_folder(["broker/groups", "broker/transactions"]) == "broker"
    with pytest.raises(ValueError, match="one after the other"):
        common_folder(["log", "isr"])


def test_a_module_that_only_declares_is_tried_by_all_tests_as_none_runs_a_line_of_it(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("class Settings:\n    limit: int = 3\n")
    (mutant,) = mutants_of(tmp_path, "settings.py")
    tests = [
        TestCoverage("test_a.py::slow", True, 2.0, {"other.py": [1]}),
        TestCoverage("test_b.py::quick", True, 1.0, {}),
    ]
    assert [test.node_id for test in covering(mutant, tests)] == ["test_b.py::quick", "test_a.py::slow"]
    tests.append(TestCoverage("test_c.py::own", True, 3.0, {"settings.py": [2]}))
    assert [test.node_id for test in covering(mutant, tests)] == ["test_c.py::own"]


def test_a_mutant_may_be_tried_by_the_quickest_tests_alone() -> None:
    tests = [TestCoverage(name, True, duration_s, {}) for name, duration_s in (("a", 1.0), ("b", 2.0), ("c", 4.0))]
    assert quickest(tests, None) == tests
    assert [test.node_id for test in quickest(tests, 3.0)] == ["a", "b"]
    assert [test.node_id for test in quickest(tests, 0.5)] == ["a"], "else it would count as run by no test"
    assert quickest([], 0.5) == []


def test_what_runs_is_the_clone_of_the_root_and_not_the_one_that_is_installed(tmp_path: Path) -> None:
    """Whoever works in a second clone would else measure the code of the first one."""
    (tmp_path / "raftwerk").mkdir()
    (tmp_path / "raftwerk" / "__init__.py").write_text("def where():\n    return __file__\n")
    (tmp_path / "test_where.py").write_text("import raftwerk\n\ndef test_where():\n    assert raftwerk.where()\n")
    program = (
        "from pathlib import Path; from support.mutation.mutant_runs import measured_coverage;"
        f"print([list(t.lines) for t in measured_coverage(Path({str(tmp_path)!r}), 'raftwerk', ['test_where.py'])])"
    )
    tests = Path(__file__).resolve().parents[1]
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tests)
    assert run.stdout.splitlines()[-1] == "[['raftwerk/__init__.py']]"


def test_thousands_of_tests_may_run_a_mutant(tmp_path: Path) -> None:
    """A child that reported them into a pipe that nobody reads until it ends would wait for ever."""
    (tmp_path / "module.py").write_text("def f(a):\n  return not a\n")
    (tmp_path / "test_module.py").write_text(
        "import pytest, sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parent))\n"
        "import module\n\n@pytest.mark.parametrize('a', range(1000))\ndef test_f" + "_" * 50 + "(a):\n  module.f(a)\n"
    )
    (mutant,) = [mutant for mutant in mutants_of(tmp_path, "module.py") if mutant.kind == "dropped not"]
    tests = covering(mutant, measured(tmp_path, "", ["test_module.py"]))
    assert len(tests) == 1000
    results = results_of(tmp_path, "", ["test_module.py"], [(mutant, tests)])
    assert [result.status for result in results] == ["survived"]


def test_a_result_counts_until_the_function_changes(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("def f(a):\n  return not a\n\ndef g(a):\n  return not a\n")
    first, other = mutants_of(tmp_path, "module.py")
    for mutant in (first, other):
        Ledger(tmp_path / "ledger").add(MutantResult(mutant.key, mutant.digest, "killed", "test_f", 0.1))
    (tmp_path / "module.py").write_text("\ndef f(a):\n  b = 0\n  return not a\n\ndef g(a):\n  return not a\n")
    statuses: dict[str, MutantResult | None] = {}
    for mutant in mutants_of(tmp_path, "module.py"):
        statuses[mutant.function] = Ledger(tmp_path / "ledger").result_of(mutant)
    assert statuses["f"] is None
    assert statuses["g"] is not None and statuses["g"].status == "killed"


def test_each_equivalent_mutant_exists_and_has_a_reason() -> None:
    root = Path(__file__).resolve().parents[2]
    reasons = equivalent_mutants()
    known: dict[str, list[CodeMutant]] = {}
    for key, reason in reasons.items():
        module = key.split(" ")[0]
        mutants = known.setdefault(module, mutants_of(root, module))
        assert key in {mutant.key for mutant in mutants}, "the code has changed: remove it, or name the new mutant"
        assert reason
