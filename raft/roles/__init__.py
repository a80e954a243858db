"""The roles of a node in the quorum: one class each, which decides what an event does in that role."""

from __future__ import annotations

from .candidate import Candidate
from .follower import Follower
from .leader import Leader
from .prospective import Prospective
from .resigned import Resigned
from .role import Role
from .unattached import Unattached

__all__ = ["Candidate", "Follower", "Leader", "Prospective", "Resigned", "Role", "Unattached"]
