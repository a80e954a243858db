"""Which connection of a controller listener belongs to which broker.

A connection over which a broker registers or sends heartbeats belongs to that broker. When it is closed, the controller
is told: that is how it notices within milliseconds that a broker's process died.
"""

from __future__ import annotations

from collections.abc import Callable

from ...network.request import RequestSink


class BrokerConnections:
    """Calls `on_disconnected(broker_id)` when the connection over which a broker spoke last is closed.

    A broker uses one connection at a time. The end of an earlier connection says nothing about the broker, and it may
    never be seen here: the other end may be gone without a FIN.
    """

    def __init__(self, on_disconnected: Callable[[int], None]) -> None:
        self._on_disconnected = on_disconnected
        self._broker_of: dict[RequestSink, int] = {}
        self._newest: dict[int, RequestSink] = {}
        """By broker, the connection over which it spoke last."""

    def on_request(self, sink: RequestSink, broker_id: int) -> None:
        """A broker spoke over this connection. The connection stays that broker's until it is closed."""
        if sink not in self._broker_of:
            self._broker_of[sink] = broker_id
            sink.on_close.append(lambda: self._on_closed(sink))
        self._newest[self._broker_of[sink]] = sink

    def _on_closed(self, sink: RequestSink) -> None:
        broker_id = self._broker_of.pop(sink)
        if self._newest.get(broker_id) is sink:
            del self._newest[broker_id]
            self._on_disconnected(broker_id)
