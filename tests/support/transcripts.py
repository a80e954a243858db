"""Comparing a transcript with what happens now. Only `make transcripts` writes one, and it shows the difference."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest

rewrite: bool = False
"""Set by the option `--rewrite-transcripts`."""


def check_transcript(path: Path, run: Callable[[str], str]) -> None:
    """Carry out the transcript at `path` with `run`; fail with the difference when the conversation goes otherwise.

    With `--rewrite-transcripts` the file is written anew; the test still fails, since the difference is to be read.
    """
    written = path.read_text()
    told = run(written)
    if told == written:
        return
    lines = difflib.unified_diff(
        written.splitlines(), told.splitlines(), f"{path.name} as written", "as it goes now", n=4
    )
    difference = "\n".join(line.rstrip("\n") for line in lines)
    if rewrite:
        path.write_text(told)
        difference += f"\n{path} is written anew: read the difference above before you keep it."
    pytest.fail(difference, pytrace=False)
