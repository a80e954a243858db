"""The page of a replay: one HTML file that holds its style, its program and the history, and asks for nothing else.

Its content security policy names its one style and its one program by their hashes, so nothing in the history can run.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files

from .encoding import encode
from .history import History
from .page_size import fitted

PAGE_BYTES_MAX = 5_000_000
"""The largest history in a page, in bytes."""
_PROGRAM = ("history.js", "pictures.js", "replay.js")


def render_replay(history: History, size_bytes_max: int = PAGE_BYTES_MAX) -> str:
    """The page. A history that is larger than that is told more coarsely, and the page says so."""
    shown = fitted(history, lambda one: len(_encoded(one)) <= size_bytes_max)
    folder = files(__package__) / "page"
    style = (folder / "replay.css").read_text("utf-8")
    script = "".join((folder / name).read_text("utf-8") for name in _PROGRAM)
    policy = (
        f"default-src 'none'; style-src '{_hash_of(style)}'; script-src '{_hash_of(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    facts = history.facts
    parts = {
        "policy": policy,
        "title": escape(f"{facts.scenario}, seed {facts.seed}: {'failed' if facts.failure else 'held'}"),
        "style": style,
        "history": _encoded(shown).decode(),
        "script": script,
    }
    page = (folder / "replay.html").read_text("utf-8")
    found = [page]
    for name, value in parts.items():
        before, _, after = found.pop().partition(f"{{{{ {name} }}}}")
        found += [before, value, after]
    return "".join(found)


def _encoded(history: History) -> bytes:
    """The history as JSON that cannot end the element it stands in."""
    return encode(history).replace("<", "\\u003c").encode()


def _hash_of(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
