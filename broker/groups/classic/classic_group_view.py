"""A classic group with the state that administrators are told."""

from __future__ import annotations

from typing import NamedTuple

from .classic_group import ClassicGroup
from .classic_group_members import ClassicGroupState


class ClassicGroupView(NamedTuple):
    """A group that is being replaced by a consumer group is closed, and is shown in the state that it had."""

    group: ClassicGroup
    state: ClassicGroupState

    @property
    def kind(self) -> str:
        """The group type, as ListGroups names it."""
        return self.group.kind

    @property
    def protocol_type(self) -> str | None:
        """The protocol type of its members."""
        return self.group.protocol_type
