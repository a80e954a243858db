"""Ports for servers that a test starts."""

from __future__ import annotations

import random

from raftwerk.cluster.local.free_ports import why_not_free

_RANGE = range(12000, 20000)
"""Below those that the kernel gives to outgoing connections, and to whoever asks for any port: one of those may be
taken again before the server listens on it. Clusters on free ports are above 20000."""


def free_ports(count: int, host: str = "") -> list[int]:
    """Different ports on which nobody listens now, on all addresses or those of `host`."""
    drawn = random.Random()  # seeded by the system: tests in other processes draw as well
    ports: list[int] = []
    for port in drawn.sample(_RANGE, len(_RANGE)):
        if why_not_free(host, port) is None:
            ports.append(port)
            if len(ports) == count:
                return ports
    raise OSError(f"no {count} free ports between {_RANGE.start} and {_RANGE.stop}")


def free_port(host: str = "127.0.0.1") -> int:
    """A port on which nobody listens now."""
    (port,) = free_ports(1, host)
    return port
