"""Checks and writes the file of a job's page. This module needs no package of an extra, the page itself does."""

from __future__ import annotations

import os

from ..errors import PipelineError


def check_report(path: str) -> None:
    """`PipelineError` when no page can be written there, for a job that takes its time before it writes one."""
    directory = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not path:
        raise PipelineError(f"cannot write the page {path}: it is a directory; name a file.")
    if not os.path.isdir(directory):
        raise PipelineError(f"cannot write the page {path}: there is no directory {directory}; make it first.")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PipelineError(f"cannot write the page {path}: the directory {directory} takes no files of this user.")


def write_report(path: str, text: str) -> None:
    """Replace the file as a whole, by a rename. `PipelineError` when it cannot be written."""
    draft = f"{path}.tmp"
    try:
        with open(draft, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(draft, path)
    except OSError as error:
        raise PipelineError(f"cannot write the page {path}: {error.strerror}.") from None
