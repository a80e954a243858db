"""Which connection of a controller listener belongs to which broker.

A connection over which the controller has accepted a registration or a heartbeat belongs to that broker. When it is
closed, the controller is told: that is how it notices within milliseconds that a broker's process died. A process that
is refused, as it has the id of another one, says nothing about the broker: not by what it sends, and not by its end.
"""

from __future__ import annotations

from collections.abc import Callable

from ....runtime.invariants import sometimes
from ...network.request import RequestSink


class BrokerConnections:
    """Calls `on_disconnected(broker_id)` when the connection over which a broker was accepted last is closed.

    A broker uses one connection at a time. The end of an earlier connection says nothing about the broker, and it may
    never be seen here: the other end may be gone without a FIN.
    """

    def __init__(self, on_disconnected: Callable[[int], None]) -> None:
        self._on_disconnected = on_disconnected
        self._broker_of: dict[RequestSink, int] = {}
        self._newest: dict[int, RequestSink] = {}
        """By broker, the connection over which it was accepted last."""

    def on_accepted(self, sink: RequestSink, broker_id: int) -> None:
        """The controller accepted what a broker asked for. The connection stays that broker's until it is closed."""
        if sink.is_gone:
            sometimes(True, "a broker's connection ended before its registration or heartbeat was answered")
            self._on_disconnected(broker_id)
            return
        if sink not in self._broker_of:
            self._broker_of[sink] = broker_id
            sink.on_close.append(lambda: self._on_closed(sink))
        self._newest[self._broker_of[sink]] = sink

    def _on_closed(self, sink: RequestSink) -> None:
        broker_id = self._broker_of.pop(sink)
        if self._newest.get(broker_id) is sink:
            del self._newest[broker_id]
            self._on_disconnected(broker_id)
