"""The moves between roles, as data.

    from \\ to     unattached  resigned  prospective  candidate  follower  leader
    unattached        x                      x                       x
    resigned          x                                              x
    prospective       x                                  x           x
    candidate         x                                              x        x
    follower          x                      x                       x
    leader            x           x                                  x

A node becomes *unattached* when it learns of a higher epoch without its leader, votes, or loses an election. A
*prospective* node asks for pre-votes in its epoch (KIP-996), which disturbs no leader. Winning those makes it a
*candidate*, which raises the epoch and votes for itself. A leader becomes *resigned* when no majority fetches from it,
or when it shuts down: it never votes or leads in that epoch again.
"""

from __future__ import annotations

from ..types import RoleKind

_U, _R, _P = RoleKind.UNATTACHED, RoleKind.RESIGNED, RoleKind.PROSPECTIVE
_C, _F, _L = RoleKind.CANDIDATE, RoleKind.FOLLOWER, RoleKind.LEADER

TRANSITIONS: dict[RoleKind, tuple[RoleKind, ...]] = {
    _U: (_U, _P, _F),
    _R: (_U, _F),
    _P: (_U, _C, _F),
    _C: (_U, _F, _L),
    _F: (_U, _P, _F),
    _L: (_U, _R, _F),
}


def is_legal(source: RoleKind, target: RoleKind) -> bool:
    """Whether a node in role `source` may enter `target`."""
    return target in TRANSITIONS[source]
