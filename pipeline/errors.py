"""What can go wrong in a pipeline, in one sentence for people."""

from __future__ import annotations

import re


class PipelineError(Exception):
    """A cause and a way out, in one sentence. Its text is what the person sees."""


def sentence_of(error: BaseException) -> str | None:
    """The sentence of the `PipelineError` that a Spark exception carries from a Python worker; None when it has none.

    Spark hands a worker's failure on as the text of its traceback, inside its own report.
    """
    if isinstance(error, PipelineError):
        return str(error)
    found = re.search(rf"^{re.escape(PipelineError.__module__)}\.PipelineError: (.+)$", str(error), re.MULTILINE)
    return found.group(1).strip() if found else None
