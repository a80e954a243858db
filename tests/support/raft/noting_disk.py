"""A simulated disk that keeps the files of unfinished snapshots that were opened."""

from __future__ import annotations

import random

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.disk.sim_file import SimFile


class NotingDisk(SimDisk):
    """`parts` are those files, in the order in which they were opened."""

    def __init__(self) -> None:
        super().__init__(random.Random(0))
        self.makedirs("/data")
        self.parts: list[SimFile] = []

    def open(self, path: str, *, create: bool = False) -> SimFile:
        file = super().open(path, create=create)
        if path.endswith(".part"):
            self.parts.append(file)
        return file
