"""What an application may not do in the simulator, because it would happen in the real world: it is refused, and told.

Python's audit events (PEP 578) tell of sockets and processes. Threads have no event before Python 3.12, waits for real
sockets and clients in C have none at all, so these are replaced while a simulation runs.
"""

from __future__ import annotations

import importlib
import select
import selectors
import sys
import threading
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any

from .controlled_sources import uses_of

_REFUSED = {
    "socket.__new__": "a real socket",
    "socket.connect": "a real connection",
    "socket.bind": "a real socket",
    "socket.sendto": "a real datagram",
    "socket.getaddrinfo": "an address in the real network",
    "socket.gethostbyname": "an address in the real network",
    "subprocess.Popen": "a process",
    "os.fork": "a process",
    "os.posix_spawn": "a process",
    "os.system": "a process",
}
C_CLIENT = "a client of librdkafka"
_IN_PLACE = {
    "a thread": "asyncio.to_thread and loop.run_in_executor(None, ...) work: the function runs in the loop's thread",
    "a process": "leave it out of what is simulated",
    C_CLIENT: "simulate what uses asyncio, such as aiokafka; for others there is raftwerk.testing.TestCluster",
}
_WITHOUT_EVENTS: tuple[tuple[Any, str, str], ...] = (
    (threading.Thread, "start", "a thread"),
    (selectors.SelectSelector, "select", "a wait for real sockets"),
    (selectors.DefaultSelector, "select", "a wait for real sockets"),
    (select, "select", "a wait for real sockets"),
)
_LIBRDKAFKAS = ("Producer", "Consumer", "ShareConsumer", "_AdminClientImpl")
_ASYNCIO_ONLY = "only what goes through asyncio's loop is simulated, to the simulated hosts"


class EscapeError(RuntimeError):
    """The application did something that the simulator does not control; the sentence says what, and where."""


class Escapes:
    """Refuses what leaves the simulation while `is_inside()` says that the application's code runs."""

    def __init__(self, is_inside: Callable[[], bool]) -> None:
        self.found: list[Exception] = []
        """What was refused; the application may have caught the errors."""
        self._is_inside = is_inside
        self._replaced: list[tuple[Any, str, Any]] = []

    def install(self) -> None:
        """Begin to refuse."""
        watching.append(self)
        _add_audit_hook()
        for owner, name, what in (*_WITHOUT_EVENTS, *((each, "__init__", C_CLIENT) for each in _python_clients())):
            self._replace(owner, name, self._refusing(getattr(owner, name), what))
        for module, name, value in uses_of([(each, self._refusing_class(each)) for each in _c_clients()]):
            self._replace(module, name, value)

    def remove(self) -> None:
        """Refuse nothing any more."""
        watching.remove(self)
        while self._replaced:
            setattr(*self._replaced.pop())

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _refusing(self, real: Callable[..., Any], what: str) -> Callable[..., Any]:
        @wraps(real)
        def function(*args: Any, **kwargs: Any) -> Any:
            if self._is_inside():
                raise self.refusal(what)
            return real(*args, **kwargs)

        return function

    def _refusing_class(self, real: Any) -> Any:
        """A class like `real`, a type of C, of which no object can be made inside the simulation."""
        return type(real.__name__, (real,), {"__init__": self._refusing(real.__init__, C_CLIENT)})

    def on_audit_event(self, event: str) -> None:
        """Raise `EscapeError` for an event that leaves the simulation."""
        what = _REFUSED.get(event)
        if what is not None and self._is_inside():
            raise self.refusal(what)

    def refusal(self, what: str) -> EscapeError:
        """The error for what leaves the simulation; the test fails of it even if the application catches it."""
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


def _c_clients() -> list[Any]:
    """The types of librdkafka's clients, where confluent-kafka is installed; applications may import it later."""
    try:
        cimpl = importlib.import_module("confluent_kafka.cimpl")
    except ImportError:
        return []
    return [getattr(cimpl, name) for name in _LIBRDKAFKAS if hasattr(cimpl, name)]


def _python_clients() -> list[Any]:
    """The classes in Python that inherit from them."""
    return [each for base in _c_clients() for each in base.__subclasses__()]


def _place() -> str:
    """The innermost line that is neither Python's own nor the simulator's."""
    ours = __file__.rpartition("/")[0] + "/"
    stdlib = threading.__file__.rpartition("/")[0] + "/"
    for frame in reversed(traceback.extract_stack()):
        is_pythons = frame.filename.startswith(stdlib) and "site-packages" not in frame.filename
        if not is_pythons and not frame.filename.startswith(ours):
            return f"{frame.filename}:{frame.lineno} ({frame.line})"
    return "an unknown place"
