"""Bugs put into handlers: one that forgets to ask whether the client has one of the rights in its row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.security.authorization_users import Right

from raftwerk.broker.authorization import Authorization
from raftwerk.broker.network.request import Request
from raftwerk.security.authorizer.acl_binding import AclOperation, ResourceType
from raftwerk.wire.api_keys import ApiKey


def leave_out_check(monkeypatch: pytest.MonkeyPatch, key: ApiKey, right: Right) -> None:
    """From now on whoever uses this API has this right to everything."""
    is_allowed, by_type = Authorization.is_allowed, Authorization.is_allowed_by_type
    sight_of_topics = Authorization.sight_of_topics

    def is_allowed_or_unchecked(self: Authorization, request: Request, *question: Any, **options: Any) -> bool:
        return (request.api_key == key and question[:2] == right) or is_allowed(self, request, *question, **options)

    def by_type_or_unchecked(self: Authorization, request: Request, *question: Any) -> bool:
        return (request.api_key == key and question == right) or by_type(self, request, *question)

    def sight_or_everything(self: Authorization, request: Request) -> Callable[[str], bool] | None:
        if request.api_key == key and right == (AclOperation.DESCRIBE, ResourceType.TOPIC):
            return lambda name: True
        return sight_of_topics(self, request)

    monkeypatch.setattr(Authorization, "is_allowed", is_allowed_or_unchecked)
    monkeypatch.setattr(Authorization, "is_allowed_by_type", by_type_or_unchecked)
    monkeypatch.setattr(Authorization, "sight_of_topics", sight_or_everything)
