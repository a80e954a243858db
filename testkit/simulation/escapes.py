"""What an application may not do in the simulator, because it would happen in the real world: it is refused, and told.

Python's audit events (PEP 578) tell of connections and processes. Threads have no event before Python 3.12, so their
start is replaced while a simulation runs.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

_REFUSED = {
    "socket.connect": "a real connection",
    "socket.bind": "a real socket",
    "socket.sendto": "a real datagram",
    "socket.getaddrinfo": "a look at the real name service",
    "socket.gethostbyname": "a look at the real name service",
    "subprocess.Popen": "a process",
    "os.fork": "a process",
    "os.posix_spawn": "a process",
    "os.system": "a process",
}
_IN_PLACE = {
    "a thread": "asyncio.to_thread and loop.run_in_executor(None, ...) work: the function runs in the loop's thread",
    "a process": "leave it out of what is simulated",
}
_ASYNCIO_ONLY = "only what goes through asyncio's loop is simulated, to the simulated hosts"


class EscapeError(RuntimeError):
    """The application did something that the simulator does not control; the sentence says what, and where."""


class Escapes:
    """Refuses what leaves the simulation while `is_inside()` says that the application's code runs."""

    def __init__(self, is_inside: Callable[[], bool]) -> None:
        self.found: list[EscapeError] = []
        """What was refused; the application may have caught the errors."""
        self._is_inside = is_inside
        self._start_of_thread = threading.Thread.start

    def install(self) -> None:
        """Begin to refuse."""
        real = self._start_of_thread = threading.Thread.start
        watching.append(self)
        _add_audit_hook()

        def start(thread: threading.Thread) -> None:
            if self._is_inside():
                raise self._refusal("a thread")
            real(thread)

        threading.Thread.start = start  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        """Refuse nothing any more."""
        watching.remove(self)
        threading.Thread.start = self._start_of_thread  # type: ignore[method-assign]

    def on_audit_event(self, event: str) -> None:
        """Raise `EscapeError` for an event that leaves the simulation."""
        what = _REFUSED.get(event)
        if what is not None and self._is_inside():
            raise self._refusal(what)

    def _refusal(self, what: str) -> EscapeError:
        way_out = _IN_PLACE.get(what, _ASYNCIO_ONLY)
        error = EscapeError(f"{what} was asked for at {_place()}; in the simulator there is none: {way_out}")
        self.found.append(error)
        return error


watching: list[Escapes] = []
"""Those that are installed; an audit hook cannot be removed."""
_has_hook: list[bool] = []


def _add_audit_hook() -> None:
    def hook(event: str, _arguments: tuple[Any, ...]) -> None:
        for each in watching:
            each.on_audit_event(event)

    if not _has_hook:
        _has_hook.append(True)
        sys.addaudithook(hook)


def _place() -> str:
    """The innermost line that is neither Python's own nor the simulator's."""
    ours = (__file__, threading.__file__)
    stdlib = threading.__file__.rpartition("/")[0] + "/"
    for frame in reversed(traceback.extract_stack()):
        if frame.filename not in ours and (not frame.filename.startswith(stdlib) or "site-packages" in frame.filename):
            return f"{frame.filename}:{frame.lineno} ({frame.line})"
    return "an unknown place"
