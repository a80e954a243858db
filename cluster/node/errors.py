"""The error with which a node stops, and how a listener that cannot listen is reported."""

from __future__ import annotations

import errno

from ...broker.network.server import Server
from ...runtime.os_errors import os_reason


class NodeFailedError(Exception):
    """The node cannot start or had to stop; the text is one sentence and says what to do."""


async def listen(server: Server) -> None:
    """Start a listener's server. Raises `NodeFailedError` when it cannot listen on its port."""
    try:
        await server.start()
    except OSError as error:
        config = server.config
        where = f"listener {config.listener_name} cannot listen on {config.host or '*'}:{config.port}"
        if error.errno == errno.EADDRINUSE:
            text = f"{where}: the port is in use; stop the process that has it, or change listeners"
            raise NodeFailedError(text) from error
        raise NodeFailedError(f"{where}: {os_reason(error)}; change listeners") from error
