"""What can go wrong in a pipeline, in one sentence for people."""

from __future__ import annotations


class PipelineError(Exception):
    """A cause and a way out, in one sentence. Its text is what the person sees."""
