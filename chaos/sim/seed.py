"""What a run follows from, beside its scenario: a seed, and where other draws replace those of the seed.

`123` is a seed as it is. `123~4.5:77` is a fork of it: the run is that of 123 up to 4.5 virtual seconds after its
faults began, and from then on everything is drawn anew, by 77. A fork may be forked again, later: `123~4.5:77~5.25:8`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_TEXT = re.compile(r"(\d+)((?:~\d+(?:\.\d{1,3})?:\d+)*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Fork:
    """From `at_s` on everything is drawn anew. That time is in virtual seconds since the faults began."""

    at_s: float
    number: int

    def __str__(self) -> str:
        return f"~{self.at_s:g}:{self.number}"


@dataclass(frozen=True, slots=True)
class Seed:
    """A number, and the forks of its run in the order of their times, which are whole milliseconds."""

    number: int
    forks: tuple[Fork, ...] = ()

    def __post_init__(self) -> None:
        times = [fork.at_s for fork in self.forks]
        if any(earlier >= later for earlier, later in pairwise(times)):
            raise ValueError(f"{self}: each fork is later than the one before it")

    @classmethod
    def parse(cls, text: str) -> Seed:
        """The seed that `str` has written. Raises ValueError with a sentence that says what it should be."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is neither a seed, such as 123, nor a fork of one, such as 123~4.5:77")
        forks = (one.split(":") for one in match[2].split("~")[1:])
        return cls(int(match[1]), tuple(Fork(float(at_s), int(number)) for at_s, number in forks))

    def forked(self, at_s: float, number: int) -> Seed:
        """This seed with everything drawn anew from then on."""
        at_s = round(at_s, 3)
        return Seed(self.number, (*(fork for fork in self.forks if fork.at_s < at_s), Fork(at_s, number)))

    @property
    def in_json(self) -> int | str:
        """A number; the text of a fork."""
        return str(self) if self.forks else self.number

    def prefixes(self) -> Iterator[tuple[Fork, Seed]]:
        """Each fork, with the seed up to it."""
        for count, fork in enumerate(self.forks, start=1):
            yield fork, Seed(self.number, self.forks[:count])

    def __str__(self) -> str:
        return f"{self.number}{''.join(map(str, self.forks))}"
