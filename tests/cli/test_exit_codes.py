"""Exit codes, as the help page says: 2 for what is written wrongly, 130 for a command that Ctrl-C ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import click
import pytest
from click.testing import CliRunner

from raftwerk.cli import options
from raftwerk.cli.main import cli
from raftwerk.cluster.client.client_errors import ClientError

ID = "MkU3OEVBNTcwNTJENDM2Qg"
CONTROLLER = """\
process.roles=controller
node.id=1
listeners=CONTROLLER://127.0.0.1:21001
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:21001
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without clusters, in a directory with a controller's properties."""
    for name, value in (("XDG_CONFIG_HOME", "config"), ("XDG_STATE_HOME", "state")):
        monkeypatch.setenv(name, str(tmp_path / value))
    for name in ("RAFTWERK_BOOTSTRAP", "RAFTWERK_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.properties").write_text(f"{CONTROLLER}log.dirs={tmp_path}/data\n")
    (tmp_path / "wrong.properties").write_text("process.roles=poet\n")
    return tmp_path


def run(line: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, line.split())
    assert result.exception is None or isinstance(result.exception, (SystemExit, click.exceptions.Exit)), result
    return result.exit_code, result.output


ASKING = [
    *("topics list", "topics create t", "topics describe t", "topics offsets t", "brokers list", "brokers log-dirs"),
    *("configs show --broker 1", "configs set --broker 1 a=b", "partitions reassignments", "features", "quorum"),
    *(
        "quorum replication",
        "groups list",
        "groups describe g",
        "transactions list",
        "quotas list",
        "produce t -m x",
        "consume t",
    ),
    *("perf produce t", "perf consume t", "doctor", "status", "env"),
]


@pytest.mark.parametrize("line", ASKING)
@pytest.mark.parametrize("wrong", ["-b localhost:abc", "-b localhost:0", "--name nobody", "-d nowhere"])
def test_a_cluster_that_is_named_wrongly(line: str, wrong: str) -> None:
    assert run(f"{line} {wrong}")[0] == 2


@pytest.mark.parametrize(
    "line",
    [
        *("node none.properties", "node wrong.properties", "format -c none.properties", "format -c wrong.properties"),
        *("format -c c.properties", "format -c c.properties -s -N", "format -c c.properties -t short -s"),
        *("format -c c.properties -I 1@nowhere", f"format -c c.properties -I 2@localhost:1:{ID}"),
        "format -c c.properties -s -f metadata.version=no",
        *("quorum add-controller -c none.properties", "quorum add-controller -c wrong.properties"),
        "quorum add-controller --controller 4@host",
        *("status -d nowhere", "kill 1", "kill one", "stop 1", "start", "logs", "down", "delete --yes"),
        *(
            "kill 1 --signal 77",
            "up -n three",
            "up --port 99999",
            "up -n 3 --controller-port 65535",
            "profile use nobody",
        ),
        *(
            "profile use nobody",
            "profile add x a:b",
            "completion tcsh",
            "run -o nonsense=1 -- true",
        ),
        *("quotas set --user a request_percentage=inf -b 127.0.0.1:1", "quotas set --user a x=nan -b 127.0.0.1:1"),
        *("perf produce t -n -1 -b 127.0.0.1:1", "perf produce t --seconds nan -b 127.0.0.1:1"),
        *("perf produce t --batch-records 1000000000 -b 127.0.0.1:1", "perf e2e t -n 0 -b 127.0.0.1:1"),
        *("up --port 0 -d .", "configs set a=b", "groups reset g -t x --to soon -b 127.0.0.1:1"),
    ],
)
def test_a_wrong_command_line_or_configuration(line: str) -> None:
    assert (run(line)[0], line) == (2, line)


def test_an_option_where_a_directory_should_be() -> None:
    code, told = run("up -n 3 -d --port 19092")
    assert (code, "'--port' is an option; -d names a directory, and --detach leaves" in told) == (2, True)
    assert "'--json' is an option; -d names a directory\n" in run("topics list -d --json")[1]


@pytest.mark.parametrize("command", ["add", "password"])
def test_a_password_that_is_no_text_is_refused_and_not_shown(command: str) -> None:
    words = ["users", command, "alice", "--password", "s3cret-p\udce4ss", "-b", "127.0.0.1:1"]
    told = CliRunner().invoke(cli, words)
    assert (told.exit_code, "s3cret" in told.output) == (2, False)
    assert "the password is not UTF-8 text" in told.stderr


def test_what_can_only_fail_has_exit_code_1(home: Path) -> None:
    assert run("topics list -b 127.0.0.1:1")[0] == 1
    assert run(f"format -c c.properties -s -t {ID}")[0] == 0
    assert run(f"format -c c.properties -s -t {ID}")[0] == 1
    (home / "data" / "meta.properties").write_text("node.id=7\n")
    assert run("quorum add-controller -c c.properties")[0] == 1


@pytest.mark.parametrize("wrong", ["-o nonsense", "--value-format csv", "--value-format poem", "--schema x"])
def test_wrong_options_of_a_job(wrong: str) -> None:
    pytest.importorskip("pyspark", reason="the jobs need PySpark: NOT tested")
    assert run(f"pipeline run lake -b 127.0.0.1:1 -t x --out o {wrong}")[0] == 2


@pytest.fixture
def interrupt_handler() -> Iterator[None]:
    """The handler of Ctrl-C, which a command keeps to itself when it was interrupted."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupt_handler")
def test_ctrl_c_while_an_error_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent brokers are asked for seconds what they are; the command's own event loop is closed then."""

    async def ask() -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(60)

    async def fail() -> None:
        raise ClientError("no broker answers")

    def explain(_error: Exception) -> Any:
        asyncio.run(ask())

    told: list[str] = []
    monkeypatch.setattr(options, "sentence_of", explain)
    with pytest.raises(click.exceptions.Exit) as ended:
        options.run_client(fail(), on_interrupt=lambda: told.append("Interrupted."))
    assert ended.value.exit_code == 130
    assert told == ["Interrupted."]


@pytest.mark.usefixtures("interrupt_handler")
def test_without_ctrl_c_the_former_handler_is_back() -> None:
    async def answer() -> int:
        return 7

    def own(_number: int, _frame: FrameType | None) -> None:
        """The handler of the program that runs the command."""

    signal.signal(signal.SIGINT, own)
    assert options.run_client(answer()) == 7
    assert signal.getsignal(signal.SIGINT) is own
