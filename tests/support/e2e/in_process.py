"""`raftwerk` called within this process: starting one is what takes the time, and it is tested elsewhere."""

from __future__ import annotations

from click.testing import CliRunner

from raftwerk.cli.main import cli


def ok(*arguments: str) -> str:
    """What the command prints. It has to succeed."""
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout
