"""Time and randomness of the application: virtual, and drawn from the seed.

`time_machine` replaces the wall clock below Python, so that kept references and `datetime` follow too. It leaves the
monotonic clocks and `sleep` alone; these are replaced in `time` and in every module that has imported them by name.
Outside of the application's events all of them are the real ones.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

_SECOND_NS = 1_000_000_000
_WAY_OUT = "raftwerk.testing.simulate needs the package time-machine: pip install 'raftwerk[simulate]'"


class ControlledSources:
    """The sources while simulations run. `sleep(seconds)` blocks the application's process for a virtual time."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.is_inside = False
        """Whether the application's code runs now."""
        self._sleep = sleep
        self._now_s = 0.0
        self._rng = random.Random(0)
        self._replaced: list[tuple[Any, str, Any]] = []
        self._traveller: Any = None
        self._coordinates: Any = None
        self._random_state = random.getstate()

    def install(self) -> None:
        """Replace the sources. Raises `ImportError` with the way out where `time_machine` is missing."""
        try:
            import time_machine  # noqa: PLC0415
        except ImportError as error:
            raise ImportError(_WAY_OUT) from error
        self._traveller = time_machine.travel(0.0, tick=False)
        self._coordinates = self._traveller.start()
        self._random_state = random.getstate()
        for module, name, value in _uses_of(self._clocks()):
            self._replace(module, name, value)
        urandom = self._drawn_instead_of(os.urandom)
        self._replace(os, "urandom", urandom)
        self._replace(random, "_urandom", urandom)
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

    def enter(self, now_s: float, wall_s: float) -> None:
        """The application's code runs from here, at these times."""
        self._now_s = now_s
        self._coordinates.move_to(wall_s)
        self.is_inside = True

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _clocks(self) -> dict[Any, Any]:
        """What stands in for each function of `time`."""

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
        return {
            **{each: seconds(each) for each in in_seconds},
            **{each: nanoseconds(each) for each in in_nanoseconds},
            time.sleep: sleep,
        }

    def _drawn_instead_of(self, real: Callable[[int], bytes]) -> Callable[[int], bytes]:
        def urandom(size: int, /) -> bytes:
            return self._rng.randbytes(size) if self.is_inside else real(size)

        return urandom

    def _seed_instead_of(self, real: Callable[..., None]) -> Callable[..., None]:
        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            drawn = self._rng.getrandbits(64) if a is None and self.is_inside else a
            real(generator, drawn, version)

        return seed


def _uses_of(replacements: dict[Any, Any]) -> list[tuple[Any, str, Any]]:
    """Modules and the names by which they know a replaced function. Python's own modules keep the real ones."""
    found: list[tuple[Any, str, Any]] = []
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        if module is None or (top in sys.stdlib_module_names and module is not time) or top in ("raftwerk", "_pytest"):
            continue
        for known_as, value in list(getattr(module, "__dict__", {}).items()):
            if type(value) is _BUILTIN and value in replacements:
                found.append((module, known_as, replacements[value]))
    return found


_BUILTIN = type(time.monotonic)
