"""Who fetches in tests of replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raftwerk.isr.results import FetchDone, FetchParams
from raftwerk.runtime.incremental_work import Work, run_at_once
from raftwerk.wire.fetch import FetchRequest


class Caller:
    """A `FetchCaller` that does all work at once."""

    on_gone: Callable[[], object] | None = None
    is_gone = False

    def run_in_steps(self, work: Work[None]) -> None:
        run_at_once(work)

    def charge(self, items: int) -> None:
        pass

    def fetch(self, manager: Any, params: FetchParams, request: FetchRequest, done: FetchDone) -> None:
        """Fetch from the manager, which calls `done`."""
        work = manager.fetch(params, request, done, self)
        if work is not None:
            run_at_once(work)
