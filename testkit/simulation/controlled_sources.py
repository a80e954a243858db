"""Time and randomness of the application: virtual, and drawn from the seed.

`time_machine` replaces the wall clock below Python, so that kept references and `datetime` follow too. It leaves the
monotonic clocks and `sleep` alone; these are replaced in `time` and in every module that has imported them by name.
Outside of the application's events, and in other threads, all of them are the real ones.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from .module_state import is_applications

_SECOND_NS = 1_000_000_000
_NODE = 0x02_00_5E_00_00_01
"""The address of the machine for `uuid.uuid1`, which would otherwise be looked up."""
_WAY_OUT = "raftwerk.testing.simulate needs the package time-machine: pip install 'raftwerk[simulate]'"


class ControlledSources:
    """The sources while simulations run. `sleep(seconds)` blocks the application's process for a virtual time."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self._is_inside = False
        self._thread = threading.get_ident()
        self._sleep = sleep
        self._now_s = 0.0
        self._rng = random.Random(0)
        self._replaced: list[tuple[Any, str, Any]] = []
        self._traveller: Any = None
        self._coordinates: Any = None
        self._random_state = random.getstate()

    @property
    def is_inside(self) -> bool:
        """Whether the application's code runs now, and it is what asks.

        Other threads of this Python, such as a library's own that was started before, stay in the real world.
        """
        return self._is_inside and threading.get_ident() == self._thread

    @is_inside.setter
    def is_inside(self, is_inside: bool) -> None:
        self._is_inside = is_inside

    def install(self) -> None:
        """Replace the sources for what this thread runs.

        Raises `ImportError` with the way out where `time_machine` is missing.
        """
        try:
            import time_machine
        except ImportError as error:
            raise ImportError(_WAY_OUT) from error
        self._thread = threading.get_ident()
        self._traveller = time_machine.travel(0.0, tick=False)
        self._coordinates = self._traveller.start()
        self._random_state = random.getstate()
        for module, name, value in uses_of([*self._clocks(), *_builders_of_aiokafka()]):
            self._replace(module, name, value)
        urandom = self._drawn_instead_of(os.urandom)
        self._replace(os, "urandom", urandom)
        self._replace(random, "_urandom", urandom)
        self._replace(uuid, "_node", _NODE)
        self._replace(uuid, "_last_timestamp", None)
        self._replace(random.Random, "seed", self._seed_instead_of(random.Random.seed))

    def remove(self) -> None:
        """Put the real sources back."""
        while self._replaced:
            setattr(*self._replaced.pop())
        random.setstate(self._random_state)
        self._traveller.stop()

    def begin(self, seed: int) -> None:
        """Begin a run: its randomness follows from the seed."""
        self._rng = random.Random(f"{seed} entropy of the application")
        random.seed(f"{seed} random of the application")
        vars(uuid)["_last_timestamp"] = None

    def enter(self, now_s: float, wall_s: float) -> None:
        """The application's code runs from here, at these times."""
        self._now_s = now_s
        self._coordinates.move_to(wall_s)
        self.is_inside = True

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _clocks(self) -> list[tuple[Any, Any]]:
        """The functions of `time`, and what stands in for each."""

        def seconds(real: Callable[[], float]) -> Callable[[], float]:
            return lambda: self._now_s if self.is_inside else real()

        def nanoseconds(real: Callable[[], int]) -> Callable[[], int]:
            return lambda: round(self._now_s * _SECOND_NS) if self.is_inside else real()

        def sleep(secs: float, /) -> None:
            if self.is_inside:
                self._sleep(secs)
            else:
                real_sleep(secs)

        real_sleep = time.sleep
        in_seconds = (time.monotonic, time.perf_counter, time.process_time, time.thread_time)
        in_nanoseconds = (time.monotonic_ns, time.perf_counter_ns, time.process_time_ns, time.thread_time_ns)
        replaced: list[tuple[Any, Any]] = [(each, seconds(each)) for each in in_seconds]
        return [*replaced, *((each, nanoseconds(each)) for each in in_nanoseconds), (time.sleep, sleep)]

    def _drawn_instead_of(self, real: Callable[[int], bytes]) -> Callable[[int], bytes]:
        def urandom(size: int, /) -> bytes:
            return self._rng.randbytes(size) if self.is_inside else real(size)

        return urandom

    def _seed_instead_of(self, real: Callable[..., None]) -> Callable[..., None]:
        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            drawn = self._rng.getrandbits(64) if a is None and self.is_inside else a
            real(generator, drawn, version)

        return seed


def _builders_of_aiokafka() -> list[tuple[Any, Any]]:
    """The builder of batches that aiokafka has in C, which reads the clock of the system, and the one in Python."""
    module: Any = sys.modules.get("aiokafka.record.default_records")
    in_python = getattr(module, "_DefaultRecordBatchBuilderPy", None)
    if in_python is None or module.DefaultRecordBatchBuilder is in_python:
        return []
    return [(module.DefaultRecordBatchBuilder, in_python)]


def uses_of(replacements: list[tuple[Any, Any]]) -> list[tuple[Any, str, Any]]:
    """Modules, the names by which they know what is replaced, and the replacements.

    Python's own modules keep what they have.
    """
    by_id = {id(real): replacement for real, replacement in replacements}
    found: list[tuple[Any, str, Any]] = []
    for name, module in list(sys.modules.items()):
        if module is None or not (module is time or is_applications(name)):
            continue
        for known_as, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in by_id:
                found.append((module, known_as, by_id[id(value)]))
    return found
