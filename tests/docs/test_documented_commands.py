"""Every `raftwerk` command in the documentation and in help pages exists, with the options that it is given there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import click
import pytest
from support.docs.documentation import DOCS, ROOT

from raftwerk.cli.main import cli

PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
_BLOCK = re.compile(r"```\w*\n(.*?)```|((?:^ {4}[^\n]*\n)+)", re.S | re.M)
_SPAN = re.compile(r"`([^`]+)`")
_BEFORE_A_COMMAND = {"$", "do", "then", "until", "while", "!", "exec", "{", "run:"}
_ENDS_A_COMMAND = set("();<>|&")


def code_lines(text: str) -> Iterator[str]:
    """The lines of all code of a page."""
    for found in _BLOCK.finditer(text):
        yield from (found[1] or found[2] or "").replace("\\\n", " ").splitlines()
    for paragraph in re.split(r"\n\s*\n|\n\|", _BLOCK.sub("\n", text)):
        for span in _SPAN.finditer(paragraph):
            yield " ".join(span[1].split())


def tokens(line: str) -> list[str]:
    """The words and operators of a line, as a shell sees them; none for what is no shell's."""
    lexer = shlex.shlex(line.strip(), posix=True, punctuation_chars=True)
    lexer.commenters, lexer.whitespace_split = "#", True
    try:
        return list(lexer)
    except ValueError:
        return []


def is_operator(token: str) -> bool:
    return bool(token) and set(token) <= _ENDS_A_COMMAND


def raftwerk_commands(line: str) -> Iterator[list[str]]:
    """The arguments of each `raftwerk` in the line."""
    words = tokens(line.replace("$(", " ( "))
    for at, word in enumerate(words):
        before = words[at - 1] if at else "$"
        if word.endswith("raftwerk") and (before in _BEFORE_A_COMMAND or is_operator(before) or "=" in before):
            yield list(takewhile(lambda token: not is_operator(token), words[at + 1 :]))


def check(arguments: list[str]) -> str:
    """What is wrong with a command; empty if nothing."""
    command: click.Command = cli
    context = click.Context(cli, info_name="raftwerk", help_option_names=["-h", "--help"])
    rest = list(arguments)
    while isinstance(command, click.Group) and rest and not rest[0].startswith(("-", "...")):
        name = rest.pop(0)
        found = command.get_command(context, name)
        if found is None:
            return "" if command.invoke_without_command else f"{context.command_path} has no command {name}"
        command, context = found, click.Context(found, info_name=name, parent=context)
    try:
        command.make_parser(context).parse_args(list(rest))
    except click.BadOptionUsage as error:  # prose may name an option without a value
        return "" if rest[-1:] == [error.option_name] else error.format_message()
    except click.UsageError as error:
        return error.format_message()
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_a_page_are_there(page: Path) -> None:
    wrong = [
        f"raftwerk {' '.join(arguments)}: {reason}"
        for line in code_lines(page.read_text())
        for arguments in raftwerk_commands(line)
        if (reason := check(arguments))
    ]
    assert wrong == []


def help_pages(command: click.Command, context: click.Context) -> Iterator[str]:
    yield command.help or ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from help_pages(found, click.Context(found, info_name=name, parent=context))


def test_examples_of_help_pages_are_there() -> None:
    pytest.importorskip("pyspark", reason="the jobs' options need PySpark: the examples are NOT tested")
    pages = list(help_pages(cli, click.Context(cli, info_name="raftwerk", help_option_names=["-h", "--help"])))
    lines = [re.split(r"\s{3,}", line.strip())[0] for page in pages for line in page.splitlines()]  # then come remarks
    found = [(line, arguments) for line in lines for arguments in raftwerk_commands(line)]
    assert len(found) > 100
    assert [f"{line}: {reason}" for line, arguments in found if (reason := check(arguments))] == []


def test_the_test_itself() -> None:
    lines = list(code_lines("```console\n$ seq 3 | raftwerk produce t -k :  # x\n```\n`raftwerk up -n 3 --detach`\n"))
    assert [one for line in lines for one in raftwerk_commands(line)] == [
        ["produce", "t", "-k", ":"],
        ["up", "-n", "3", "--detach"],
    ]
    assert check(["topics", "make"]) == "raftwerk topics has no command make"
    assert "--nodez" in check(["up", "--nodez", "3"])
