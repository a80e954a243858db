"""The probe of a broker's port, also in a process whose connections can be cut, as in clusters of the pytest plugin."""

from __future__ import annotations

import asyncio
import socket

import pytest

from raftwerk.controller.brokers.listener_probe import ProbeResult, tcp_probe
from raftwerk.runtime.faults.network_faults import NetworkFaults


@pytest.mark.parametrize("can_be_cut", [False, True])
def test_a_port_without_a_process_refuses(can_be_cut: bool) -> None:
    async def main() -> list[ProbeResult]:
        if can_be_cut:
            NetworkFaults()
        listener = socket.create_server(("127.0.0.1", 0))
        host, port = listener.getsockname()
        found = [await tcp_probe(host, port)]
        listener.close()
        found.append(await tcp_probe(host, port))
        return found

    assert asyncio.run(main()) == [ProbeResult.CONNECTED, ProbeResult.REFUSED]


def test_a_port_behind_a_cut_is_unknown() -> None:
    async def main() -> ProbeResult:
        cuts = NetworkFaults()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            host, port = listener.getsockname()
            cuts.cut([(host, port)])
            return await tcp_probe(host, port, timeout_s=0.05)

    assert asyncio.run(main()) is ProbeResult.UNKNOWN


def test_nothing_is_known_of_a_listener_whose_host_name_cannot_be_encoded() -> None:
    assert asyncio.run(tcp_probe("a..b", 9092)) is ProbeResult.UNKNOWN
