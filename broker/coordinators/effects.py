"""What a shard or a group asks its coordinator to do, as far as all coordinators do it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .record_fields import CoordinatorRecord

ResultT = TypeVar("ResultT")
TagT = TypeVar("TagT")


@dataclass(frozen=True, slots=True)
class Reply(Generic[ResultT]):
    """Answer the request that waits under `token`, which is never None."""

    token: Any
    result: ResultT


@dataclass(frozen=True, slots=True)
class Persist(Generic[TagT]):
    """Write the records as one batch, and call `on_persisted(tag, error)` when they are committed or failed."""

    records: tuple[CoordinatorRecord, ...]
    tag: TagT
