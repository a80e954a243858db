"""`request_percentage`: how much of the event loop's time the requests of a client take (KIP-124).

Apache Kafka counts the time of its threads, and 100 is one thread. A node has one event loop, and 100 is all of it. The
time counts in which a request is decoded and its handler runs, also the steps of its work in later iterations. What
follows when other requests or followers complete it is not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ...controller.security.client_quotas import REQUEST_PERCENTAGE
from ...runtime.incremental_work import Work
from .client_quota_manager import ClientQuotaManager
from .sampled_rate import QuotaWindow
from .throttling import throttle

if TYPE_CHECKING:
    from ..network.request import Request, RequestSink

T = TypeVar("T")
_Begin = Callable[["Request"], None]


class RequestQuota(ClientQuotaManager):
    """Measures requests with a precise clock, `stopwatch`, in seconds. Without such quotas it does nothing."""

    def __init__(self, window: QuotaWindow, stopwatch: Callable[[], float]) -> None:
        super().__init__(REQUEST_PERCENTAGE, window, throttle_ms_max=window.size_ms)
        self._stopwatch = stopwatch
        self._current: Request | None = None
        self._since_s = 0.0
        """When the time began that the present request is still to be charged for."""

    def start(
        self,
        start: Callable[[RequestSink, memoryview, _Begin], None],
        sink: RequestSink,
        frame: memoryview,
        begin: _Begin,
    ) -> None:
        """Start a request by `start`, which calls `begin`, and measure it."""

        def begin_measured(request: Request) -> None:
            begin(request)
            self._current = request

        self._since_s = self._stopwatch()
        try:
            start(sink, frame, begin_measured)
        finally:
            current, self._current = self._current, None
            if current is not None:
                self._charge(current, self._stopwatch() - self._since_s)

    def settle(self, request: Request) -> None:
        """Charge for the time until now, so that the answer, which is made next, can say the throttle time."""
        if request is self._current:
            now_s = self._stopwatch()
            self._charge(request, now_s - self._since_s)
            self._since_s = now_s

    def measured(self, request: Request, work: Work[T]) -> Work[T]:
        """The same work; each of its steps is charged for."""
        try:
            while True:
                began_s = self._stopwatch()
                try:
                    step = next(work)
                except StopIteration as end:
                    result: T = end.value
                    return result
                finally:
                    now_s = self._stopwatch()
                    self._charge(request, now_s - began_s)
                    if request is self._current:
                        self._since_s = now_s
                yield step
        finally:
            work.close()

    def _charge(self, request: Request, seconds: float) -> None:
        throttle(self, request, seconds * 100)
