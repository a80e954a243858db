"""The roles of the quorum, one class each: their state, their timers, and to whom they give a vote."""

from __future__ import annotations

from typing import TypeAlias

from .candidate import Candidate
from .follower import Follower
from .leader import Leader
from .prospective import Prospective
from .resigned import Resigned
from .unattached import Unattached

Role: TypeAlias = Unattached | Resigned | Prospective | Candidate | Follower | Leader

__all__ = ["Candidate", "Follower", "Leader", "Prospective", "Resigned", "Role", "Unattached"]
