"""Which cluster must be at the addresses that a command took from the files of a local cluster.

Another cluster may have the same ports while that one is stopped. A request that was meant for one of them must not be
carried out by the other, least of all a deletion. So each new connection to one of these addresses asks for the cluster
id before anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....wire.api_keys import ApiKey

if TYPE_CHECKING:
    from ....wire.client import Connection
    from ..client_errors import Address

_ASK_BROKER: tuple[int, dict[str, Any]] = (0, {"include_cluster_authorized_operations": False})
_ASK_CONTROLLER: tuple[int, dict[str, Any]] = (1, {"include_cluster_authorized_operations": False, "endpoint_type": 2})
"""The version and the fields of DescribeCluster; endpoint type 2 means the controllers (KIP-919)."""
_LOOPBACK = {"localhost": "127.0.0.1", "::1": "127.0.0.1"}


class WrongClusterError(OSError):
    """The peer belongs to another cluster than to the expected one."""

    def __init__(self, reason: str, way_out: str) -> None:
        self.reason = reason
        """In words that follow its address."""
        self.way_out = way_out
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class ExpectedCluster:
    """A cluster whose id is known from its files, and the addresses that its nodes have by these files."""

    cluster_id: str
    name: str
    """In words that fit into a sentence, as `the one in ./raftwerk-data`."""
    brokers: Collection[Address]
    controllers: Collection[Address]
    way_out: Callable[[], str]
    """Finds out what to do where another cluster has its addresses."""
    is_down: Callable[[], bool]
    """Finds out whether none of its nodes runs, so that what answers at its addresses is none of them."""

    def has(self, address: Address) -> bool:
        """Whether one of its nodes should be at this address."""
        return _normal(address) in map(_normal, (*self.brokers, *self.controllers))


EXPECTED_CLUSTER: ContextVar[ExpectedCluster | None] = ContextVar("expected cluster", default=None)
"""The local cluster that the running command found by a name or by a directory."""


def is_broker_checked(address: Address) -> bool:
    """Whether `check_cluster` asks a peer at this address, since a broker of the expected cluster should be there."""
    expected = EXPECTED_CLUSTER.get()
    return expected is not None and _normal(address) in map(_normal, expected.brokers)


async def check_cluster(connection: Connection, address: Address, timeout_s: float) -> None:
    """Ask a peer that should be a node of the expected cluster for its cluster id.

    Nothing is asked elsewhere. Raises `WrongClusterError` when it belongs to another cluster, and the errors of
    `Connection.request`. The connection is closed after an error.
    """
    expected = EXPECTED_CLUSTER.get()
    if expected is None or not expected.has(address):
        return
    version, fields = _ASK_BROKER if is_broker_checked(address) else _ASK_CONTROLLER
    try:
        answer = await connection.request(ApiKey.DESCRIBE_CLUSTER, version, fields, timeout_s=timeout_s)
        if answer.cluster_id != expected.cluster_id:
            told = f" ({answer.cluster_id})" if answer.cluster_id else ""
            raise WrongClusterError(f"belongs to another cluster{told}, not to {expected.name}", expected.way_out())
    except BaseException:
        connection.close()
        raise


def way_out_if_down(addresses: Iterable[Address]) -> str | None:
    """What to do where somebody at these addresses cannot be asked for the cluster id, as it does not take our login.

    None unless they are addresses of the expected cluster, and none of its nodes runs.
    """
    expected = EXPECTED_CLUSTER.get()
    if expected is None or not any(map(expected.has, addresses)) or not expected.is_down():
        return None
    return f"that is not {expected.name}; {expected.way_out()}"


def _normal(address: Address) -> Address:
    host, port = address
    return _LOOPBACK.get(host, host), port
