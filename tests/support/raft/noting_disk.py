"""A simulated disk that keeps the files of snapshots and of spare space that were opened."""

from __future__ import annotations

import random

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.disk.sim_file import SimFile
from raftwerk.raft.replication.spare_space import SPARE_FILE


class NotingDisk(SimDisk):
    """`files` are those files, in the order in which they were opened."""

    def __init__(self) -> None:
        super().__init__(random.Random(0))
        self.makedirs("/data")
        self.files: list[SimFile] = []

    def open(self, path: str, *, create: bool = False) -> SimFile:
        file = super().open(path, create=create)
        if ".checkpoint" in path or path.endswith(SPARE_FILE):
            self.files.append(file)
        return file
