"""The options, exit codes and error sentences of `raftwerk chaos`, without a cluster."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.chaos.histories import clean

from raftwerk.chaos.live.checker.checker import check_lines
from raftwerk.chaos.live.nemesis import machine_capabilities
from raftwerk.chaos.live.nemesis.faults import FAULTS
from raftwerk.chaos.live.run import RunResult
from raftwerk.cli.fault_tests.chaos import _conclude
from raftwerk.cli.main import cli


def chaos(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["chaos", *map(str, arguments)])


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The directory of a run."""
    run = tmp_path / "recorded"
    (run / "history").mkdir(parents=True)
    (run / "history" / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in clean()))
    return run


@pytest.mark.parametrize(
    ("nemesis", "reason"),
    [
        ("all,kill", "--nemesis all stands alone, without other faults"),
        ("kill,none", "--nemesis none stands alone, without other faults"),
        (",", "--nemesis names no fault: --nemesis none runs the load without faults"),
        ("kil", "There is no fault 'kil'. Did you mean kill?"),
    ],
)
def test_names_that_do_not_name_faults_are_refused(tmp_path: Path, nemesis: str, reason: str) -> None:
    result = chaos("run", "--nemesis", nemesis, "-o", tmp_path / "run")
    assert result.exit_code == 2 and reason in result.output
    assert not (tmp_path / "run").exists()


def test_the_help_says_which_faults_work_in_a_running_cluster() -> None:
    anywhere, _, in_own = chaos("run", "--help").output.partition(
        "Faults only in clusters that the run starts itself:\n"
    )
    names = {line.split()[0] for line in in_own.splitlines() if line[:2] == "  " and line[2:3].strip()}
    assert names == {name for name, fault in FAULTS.items() if fault.setups}
    assert all(f"\n  {name} " in anywhere for name in ("kill", "pause", "eio"))


def test_a_run_of_which_no_fault_can_be_injected_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for need in ("iptables", "tmpfs"):
        monkeypatch.setitem(machine_capabilities._PROBES, need, lambda: "needs root")
        monkeypatch.setitem(machine_capabilities._TOOLS, need, ())
    result = chaos("run", "--nemesis", "cut, disk-full,cut", "-o", tmp_path / "run")
    assert result.exit_code == 1
    assert "none of the faults can be injected here: cut (needs root), disk-full (needs root)." in result.output
    assert "--nemesis none runs the load without faults" in result.output
    assert not (tmp_path / "run").exists()


def test_a_report_that_cannot_be_written_is_told_in_a_sentence(recorded: Path) -> None:
    result = chaos("report", recorded, "-o", recorded / "none" / "r.html")
    assert result.exit_code == 1
    assert result.output == f"Error: {recorded}/none/r.html: no such file or directory\n"
    (recorded / "report.html").mkdir()
    result = chaos("report", recorded)
    assert result.exit_code == 1 and result.output == f"Error: {recorded}/report.html: is a directory\n"


def test_a_report_that_is_written_again_tells_what_only_the_run_knew(recorded: Path) -> None:
    told = {"left_out": {"cut": "needs root"}, "errors": ["processor-0 ended with exit code 1"]}
    (recorded / "verdict.json").write_text(json.dumps(told))
    assert chaos("report", recorded).exit_code == 0
    page = (recorded / "report.html").read_text()
    assert "needs root" in page and "processor-0 ended with exit code 1" in page


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.jsonl.gz", b"{}\n", "is not compressed by gzip, as its name says, or is damaged"),
        (
            "a.jsonl.gz",
            gzip.compress(b'{"f":"x"}\n' * 9, mtime=0)[:-12],
            "is cut off: its compressed data ends too early",
        ),
        ("a.jsonl", b"\xff\xfe\n", "is not text in UTF-8, as a history is"),
    ],
    ids=["not compressed", "cut off", "not text"],
)
def test_a_file_that_is_no_history_is_named(tmp_path: Path, name: str, data: bytes, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    for command in (("check", path), ("check", path, "--to-edn", tmp_path / "r.edn")):
        result = chaos(*command)
        assert result.exit_code == 1 and result.output == f"Error: {path} {reason}\n"


def test_no_history_with_a_wrong_line_is_converted(recorded: Path, tmp_path: Path) -> None:
    edn, history = tmp_path / "r.edn", recorded / "history" / "all.jsonl"
    number = len(history.read_text().splitlines()) + 1
    history.write_text(history.read_text() + '{"process": "p0", "f": "send", "type": "ok"}\n')
    for option in ("--to-edn", "--to-elle"):
        result = chaos("check", recorded, option, edn)
        assert result.exit_code == 1 and f"all.jsonl:{number}: the field 'topic' is missing" in result.output
        assert not edn.exists()


def test_a_history_that_is_named_twice_is_read_once(recorded: Path) -> None:
    once = chaos("check", recorded).output
    assert chaos("check", recorded, recorded, recorded / "history" / ".." / "history" / "all.jsonl").output == once


def test_no_output_replaces_another_file_of_the_command(recorded: Path, tmp_path: Path) -> None:
    edn, history = tmp_path / "r.edn", recorded / "history" / "all.jsonl"
    result = chaos("check", recorded, "--to-edn", edn, "--to-elle", f"{tmp_path}/./r.edn")
    assert result.exit_code == 2 and f"--to-edn and --to-elle name the same file, {edn}" in result.output
    assert not edn.exists()
    before = history.read_text()
    result = chaos("check", recorded, "--to-edn", history)
    assert result.exit_code == 2 and f"{history} is one of the histories to read" in result.output
    assert history.read_text() == before


def test_a_verdict_is_printed_also_where_the_report_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = RunResult(check_lines(clean()), {"kill": 2}, {}, not_injected=("pause", "eio"))
    assert _conclude(str(tmp_path / "none"), outcome, False) == 1
    out, err = capsys.readouterr()
    assert out.startswith("faults: kill 2\nnever injected: pause, eio (") and out.endswith("VALID\n")
    assert err == f"Error: the report could not be written: {tmp_path}/none/report.html: no such file or directory\n"
