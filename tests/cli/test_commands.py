"""Every command of `raftwerk`, its help page and its options: one style, one name for one thing."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from raftwerk import cli as cli_package
from raftwerk.chaos.live.nemesis.faults import FAULTS, no_such_fault
from raftwerk.chaos.sim.scenarios import SCENARIOS
from raftwerk.cli.main import cli
from raftwerk.cluster.command_line.commands import Argument, Command, Group
from raftwerk.cluster.command_line.plural import counted

pytest.importorskip("pyspark", reason="the jobs' options need PySpark: the commands are NOT tested")


def _commands(command: click.Command, path: str = "raftwerk") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _commands(found, f"{path} {name}")


ALL = dict(_commands(cli))
LEAVES = {path: one for path, one in ALL.items() if not isinstance(one, click.Group) or one.invoke_without_command}
WITHOUT_CLUSTER = (
    *("node", "format", "certificates", "settings", "log", "completion", "sim", "demo", "run", "clusters", "profile"),
    *("chaos faults", "chaos check", "chaos clean", "chaos report", "pipeline demo", "pipeline run maintain"),
)
"""These work on files, on all clusters, or on one that they start for themselves."""


def _run(line: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, line.split()[1:], prog_name="raftwerk")
    return result.exit_code, result.output


def _options(command: click.Command) -> dict[str, click.Option]:
    return {name: one for one in command.params if isinstance(one, click.Option) for name in one.opts}


@pytest.mark.parametrize("path", ALL)
def test_every_command_has_the_style(path: str) -> None:
    assert isinstance(ALL[path], Command | Group)
    code, page = _run(f"{path} --help")
    assert (code, _run(f"{path} -h")) == (0, (0, page))
    options = page.partition("\nOptions:\n")[2].partition("\n\n")[0].splitlines()
    assert all(line.startswith(("  -", "    ")) for line in options), page  # arguments stand in the usage line


def _shown_options(path: str) -> list[click.Option]:
    return [one for one in ALL[path].params if isinstance(one, click.Option) and not one.hidden]


@pytest.mark.parametrize("path", list(ALL)[1:])
def test_every_help_page_has_one_style(path: str) -> None:
    text = ALL[path].help or ""
    first, _, rest = text.partition("\n\n")
    assert first[0].isupper()
    assert first.endswith(".")
    assert "Example" in rest
    examples = rest.partition("Example")[2].splitlines()[1:]
    assert any(path in line or path.removesuffix(" describe") in line for line in examples), text
    for option in _shown_options(path):
        told = option.help or ""
        assert told, f"{path} {option.opts}"
        assert told[0].isupper() or told[0].isdigit(), f"{path} {option.opts}: {told}"
        assert told.endswith("."), f"{path} {option.opts}: {told}"


def test_one_flag_has_one_name_everywhere() -> None:
    letters: dict[str, dict[tuple[str, ...], str]] = {}
    kinds: dict[str, dict[bool, str]] = {}
    for path in ALL:
        for option in _shown_options(path):
            for name in (one for one in option.opts if one.startswith("--")):
                short = tuple(one for one in option.opts if not one.startswith("--"))
                letters.setdefault(name, {})[short] = path
                kinds.setdefault(name, {})[option.is_flag] = path
    # In jobs -o is an option of the source, as it is a setting in `up`. consume -f is as in kcat, and
    # node --format formats directories, as kafka-storage.sh format does.
    exceptions = ("--output", "--format")
    assert {name: found for name, found in letters.items() if len(found) > 1 and name not in exceptions} == {}
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}


def test_numbers_are_n_in_help_pages() -> None:
    told = " ".join(_run("raftwerk perf produce --help")[1].split())
    assert "-p, --partitions N If TOPIC is created. [default: 6; N>=1]" in told
    assert "[default: 5; 1<=N<=100]" in told


@pytest.mark.parametrize("path", LEAVES)
def test_a_topic_or_group_may_be_an_option_everywhere(path: str) -> None:
    names = {"topic": "--topic", "group": "--group"}
    for one in LEAVES[path].params:
        metavar = (one.metavar or one.name or "").strip("[].").lower()
        if isinstance(one, click.Argument) and metavar in names:
            assert isinstance(one, Argument)
            assert names[metavar] in one.names


def test_options_of_other_tools_get_hints() -> None:
    for option in ("--unset", "--delete-config"):
        code, told = _run(f"raftwerk configs set --topic t {option} retention.ms")
        assert (code, "raftwerk configs unset" in told) == (2, True)
    assert "No such option" in _run("raftwerk configs set --topic t --nonsense")[1]
    assert "127.0.0.1:1 refuses" in _run("raftwerk topics list --broker-list 127.0.0.1:1")[1]


def test_only_options_and_commands_of_the_help_are_suggested() -> None:
    for line, meant in (
        ("groups reset g --offset 3", "'--offset'. Did you mean --to?"),
        ("consume t --bootstrap-serve x", "'--bootstrap-serve'. Did you mean --bootstrap-server?"),
        ("perf e2e t --seconds 3", "'--seconds': it ends after -n N records"),
        ("perf consume t --seconds 3", "'--seconds': it ends at the end of TOPIC, or after -n N records"),
        ("topics add-partitions t 4", "'add-partitions'. To add partitions: raftwerk topics alter TOPIC -p N"),
        ("topics create t --topik 3", "No such option '--topik'.\n"),
        ("down orders", "Got unexpected extra argument (orders): --name NAME names a cluster.\n"),
        ("topics create t --partition 3", "Did you mean --partitions?"),
    ):
        code, told = _run(f"raftwerk {line}")
        assert (code, meant in told) == (2, True), told


def test_a_topic_as_an_option() -> None:
    at = "-b 127.0.0.1:1"
    for line in (
        "topics create --topic x --partitions 3 --replication-factor 1",
        "topics describe --topic x --topic y",
        "topics delete -t x",
        "produce --topic x -m 1",
        "consume --topic x --from-beginning --max-messages 3",
        "perf produce --topic x --num-records 1 --throughput 3",
        "groups describe --group x",
        "groups reset -g x -t y --to-offset 3 --execute",
    ):
        code, told = _run(f"raftwerk {line} {at}")
        assert (code, "refuses the connection" in told) == (1, True), f"{line}: {told}"
    assert "Missing argument 'TOPIC'" in _run("raftwerk consume")[1]
    assert "Missing argument 'TOPIC...'" in _run("raftwerk topics create")[1]
    assert "TOPIC is given twice" in _run("raftwerk consume x --topic y")[1]


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_names_its_cluster_in_the_same_way(path: str) -> None:
    options = _options(LEAVES[path])
    needs_none = any(f"{path} ".startswith(f"raftwerk {name} ") for name in WITHOUT_CLUSTER)
    assert needs_none == ("--name" not in options) == ("--dir" not in options)
    if "-b" in options:
        assert options["-b"] is options["--bootstrap-server"]
        assert "--name" in options
    if "-d" in options:
        assert options["-d"] is options["--dir"]


@pytest.mark.parametrize(
    ("line", "suggestion"),
    [
        ("raftwerk topcs list", "Did you mean topics?"),
        ("raftwerk topics crate", "Did you mean create"),
        ("raftwerk pipeline run lak", "Did you mean lake?"),
        ("raftwerk nonsense", "raftwerk --help lists them"),
        ("raftwerk topics list --jso", "--json"),
        ("raftwerk topics --create --topic x", "raftwerk topics create --help"),
        ("raftwerk -b x topics list", "Options of a command stand behind it: raftwerk COMMAND -b"),
    ],
)
def test_mistyped_names_get_suggestions(line: str, suggestion: str) -> None:
    code, told = _run(line)
    assert (code, suggestion in told) == (2, True), told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("raftwerk consume t -n three", "'three' is not a whole number of 1 or more."),
        ("raftwerk consume t -n 0", "0 is not a whole number of 1 or more."),
        ("raftwerk perf produce t --in-flight 1000", "1000 is not a whole number from 1 to 100."),
        ("raftwerk perf produce t --seconds x", "'x' is not a number of 0 or more."),
        ("raftwerk sim --minutes 0", "0.0 is not a number above 0."),
        ("raftwerk groups reset g --topic t --shift x", "'x' is not a whole number."),
        (
            "raftwerk sim --scenario netwrk",
            "'netwrk' is not one of those that raftwerk sim --help lists. Did you mean net",
        ),
        ("raftwerk produce t -z zst", "'none', 'gzip', 'snappy', 'lz4', 'zstd'. Did you mean zstd?"),
        ("raftwerk consume t -n 99999999999999999999", "99999999999999999999 does not fit in 64 bits."),
        ("raftwerk perf produce t --seconds nan", "nan does not fit in 64 bits."),
        ("raftwerk consume t --since 99999999999999999999", "is later than Kafka's timestamps go"),
        ("raftwerk consume t --since 0001-01-01", "'0001-01-01' is before 1970"),
        ("raftwerk consume t --since 0001-01-01T00:00+14:00", "is before 1970"),
        ("raftwerk consume t --since \u00b2", "is not a time like 10m (ago)"),
        ("raftwerk groups reset g --topic t --to \u00b2", "is neither earliest nor latest"),
        ("raftwerk transactions list --state asleep", "'asleep' is not one of 'Empty', 'Ongoing', 'PrepareCommit'"),
        ("raftwerk consume t -C", "There is no option '-C': consume reads without it"),
        ("raftwerk consume t --property print.key=true", "'--property': -k TEXT prints keys"),
        ("raftwerk produce t -K:", "'-K': -k TEXT is between key and value"),
        ("raftwerk groups reset g --topic t:a --to latest", "'t:a' is not TOPIC or TOPIC:PARTITION,PARTITION"),
        ("raftwerk groups reset g --to-earliest", "'--to-earliest': write --to earliest"),
        ("raftwerk produce t -z x", "'none', 'gzip', 'snappy', 'lz4', 'zstd'."),
    ],
)
def test_wrong_values_are_told_in_plain_words(line: str, told: str) -> None:
    code, output = _run(line)
    assert (code, told in " ".join(output.split())) == (2, True), output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("raftwerk consume t --since {}", "is later than Kafka's timestamps go"),
        ("raftwerk consume t --since {}d", "is before 1970"),
        ("raftwerk groups reset g --topic t --to {}", "is neither earliest nor latest"),
        ("raftwerk groups reset g --topic t:{} --to latest", "is not TOPIC or TOPIC:PARTITION,PARTITION"),
        ("raftwerk partitions cancel t-{}", "is not TOPIC-PARTITION"),
        ("raftwerk partitions reassign t-0={}", "is not TOPIC-PARTITION=BROKER"),
        ("raftwerk features set kraft.version={}", "a level is a number"),
    ],
)
@pytest.mark.parametrize("digits", [400, 5000])
def test_numbers_of_thousands_of_digits_are_told(line: str, told: str, digits: int) -> None:
    """Python makes no int of them, and no time of those with hundreds."""
    code, output = _run(line.format("9" * digits))
    assert (code, told in " ".join(output.split())) == (2, True), output[-500:]


@pytest.mark.parametrize(
    ("name", "meant"), [("partition", "cut, cut-in"), ("kil", "kill"), ("crsh", "kill"), ("latency", "slow")]
)
def test_words_of_others_lead_to_faults(name: str, meant: str) -> None:
    assert f"no fault '{name}'. Did you mean {meant}" in no_such_fault(name)
    assert "chaos faults lists them" in no_such_fault("xyz") and "mean" not in no_such_fault("xyz")


@pytest.mark.parametrize("name", ["topic", "partition", "feature", "config", "broker", "group", "cluster", "profiles"])
def test_names_of_other_tools_are_understood(name: str) -> None:
    assert _run(f"raftwerk {name} --help")[0] == 0


def test_faults_and_scenarios_are_explained() -> None:
    told = " ".join(_run("raftwerk chaos run --help")[1].split())
    assert all(f"{fault.name} {fault.what}" in told for fault in FAULTS.values())
    told = " ".join(_run("raftwerk sim --help")[1].split())
    assert all(f"{scenario.name} {scenario.what}" in told for scenario in SCENARIOS.values())


def test_a_node_needs_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    code, told = _run("raftwerk node server.properties")
    assert (code, "nodes need Linux" in told) == (1, True)


@pytest.mark.parametrize("option", ["--broker", "--loggers"])
def test_broker_0_can_be_named(option: str) -> None:
    """0 is a node id, and not an option that was left out."""
    nobody = ("-b", "127.0.0.1:1")
    alone = CliRunner().invoke(cli, ["configs", "show", option, "0", *nobody])
    assert alone.exit_code == 1 and "no broker answers" in alone.output
    with_all = CliRunner().invoke(cli, ["configs", "show", option, "0", "--all-brokers", *nobody])
    assert with_all.exit_code == 2 and "give one of --topic NAME" in with_all.output


def test_numbers_of_things_are_in_the_singular_for_one() -> None:
    assert [counted(number, "node") for number in (0, 1, 2, 1000)] == ["0 nodes", "1 node", "2 nodes", "1,000 nodes"]
    plurals = re.compile(r"\} (nodes|partitions|replicas|records|brokers|members|moves|operations|runs|notes)\b")
    sources = Path(inspect.getfile(cli_package)).parent.rglob("*.py")
    assert [f"{path.name}: {found[0]}" for path in sources for found in plurals.finditer(path.read_text())] == []
