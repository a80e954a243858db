"""The time from send to ack of small records at steady rates, alone and beside other work."""

from __future__ import annotations

from collections.abc import Iterator

from ..common import client_workloads
from ..common.client_workloads import Figure
from . import noise
from .peer import Peer, Replication
from .throughput import topic

RATES = (100, 1_000, 5_000)
BESIDE = {
    "a compaction": noise.compaction,
    "a cold reader": noise.cold_reader,
    "a joining replica": noise.joining_replica,
    f"{noise.IDLE_CONNECTIONS:,} idle connections": noise.idle_connections,
}
RATE_BESIDE = 1_000


def at_rates(peer: Peer, replication: Replication, seconds: float, maximum: float) -> Iterator[Figure]:
    """Percentiles at each rate, and at half of this cluster's own maximum of one-record requests a second."""
    with topic(peer, "paced", replication) as name:
        for rate, text in [*((rate, f"{rate:,}/s") for rate in RATES), (int(maximum / 2), "half of its own maximum")]:
            for figure in client_workloads.ack_latency(peer.bootstrap, name, rate, seconds, replication.acks):
                label = f"ack {replication} at {text}, {figure.name}"
                yield Figure(label, figure.value, figure.unit, figure.bad, False)


def beside_other_work(peer: Peer, seconds: float) -> Iterator[Figure]:
    """Percentiles of replicated records at 1,000 a second beside each kind of other work."""
    with topic(peer, "beside", peer.replicated) as name:
        for what, begin in BESIDE.items():
            if begin is noise.joining_replica and peer.brokers < 2:
                continue
            with begin(peer):
                figures = client_workloads.ack_latency(peer.bootstrap, name, RATE_BESIDE, seconds, -1)
            for figure in figures:
                label = f"ack {peer.replicated} beside {what}, {figure.name}"
                yield Figure(label, figure.value, figure.unit, figure.bad, False)
