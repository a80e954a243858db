"""The ports through which metrics see a node's requests and records as they pass."""

from __future__ import annotations

from dataclasses import dataclass

from ...broker.network import request
from ...broker.network.request import RequestObserver
from ...isr import ports
from ...isr.ports import ReplicaObserver


@dataclass(frozen=True, slots=True)
class NodeObservers:
    """The observers that a node is made with. The defaults do nothing; `cluster/metrics` has those that count."""

    replicas: ReplicaObserver = ports.NO_OBSERVER
    requests: RequestObserver = request.NO_OBSERVER


NO_OBSERVERS = NodeObservers()
