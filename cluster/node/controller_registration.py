"""Registers a controller with the active controller (KIP-919), so that feature levels can be raised safely.

A controller registers once in each incarnation, as soon as there is a leader. The answer comes after the commit. The
active controller refuses a controller that does not support a finalized feature level; that controller stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from ...broker.to_controller.controller_channel import ControllerAddress, ControllerChannel
from ...controller.metadata.metadata_loader import MetadataLoader
from ...raft.driver.raft_driver import RaftDriver
from ...raft.types import LeaderAndEpoch
from ...runtime.ports import Runtime
from ...wire.api_keys import ApiKey
from ...wire.client import Login
from ...wire.errors import ErrorCode, ProtocolError
from ..settings.node_config import NodeConfig
from ..settings.settings_per_package import SECURITY_PROTOCOL_IDS, voter_listeners
from .errors import NodeFailedError

_VERSION = 0
_TIMEOUT_MS = 10_000
_PAUSE_S = 0.5

_logger = logging.getLogger("raftwerk.node")


class ControllerRegistrationManager:
    """Sends the registration until it is accepted. It calls `on_fatal` when it is refused."""

    def __init__(
        self,
        config: NodeConfig,
        runtime: Runtime,
        loader: MetadataLoader,
        raft: RaftDriver,
        on_fatal: Callable[[BaseException], None],
        login: Login | None,
    ) -> None:
        client_id = f"raftwerk-controller-{config.node_id}"
        self._channel = ControllerChannel(lambda: leader_address(raft), runtime, client_id, _TIMEOUT_MS, login)
        self._node_id = config.node_id
        incarnation_id = UUID(int=runtime.rng.getrandbits(128), version=4)
        self._fields = _registration(config, loader.supported_features, incarnation_id)
        self._on_fatal = on_fatal
        self._has_leader = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        loader.subscribe_leader(self._on_leader)

    def start(self) -> None:
        """Begin to send the registration, on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._register(), name=f"controller {self._node_id}")

    async def stop(self) -> None:
        """Stop sending it and close the connection."""
        self._channel.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _on_leader(self, leader: LeaderAndEpoch) -> None:
        self._channel.on_leader_change()
        if leader.leader_id is None:
            self._has_leader.clear()
        else:
            self._has_leader.set()

    async def _register(self) -> None:
        told: ErrorCode | None = None
        while True:
            await self._has_leader.wait()
            try:
                answer = await self._channel.request(ApiKey.CONTROLLER_REGISTRATION, _VERSION, self._fields)
                code, message = ErrorCode(answer.error_code), answer.error_message
            except ProtocolError as error:
                code, message = error.code, error.message
            if code is ErrorCode.NONE:
                return
            if code is ErrorCode.UNSUPPORTED_VERSION:
                self._on_fatal(NodeFailedError(f"controller {self._node_id} is refused: {message}"))
                return
            if code is not told:
                _logger.warning("controller %d is not registered yet: %s %s", self._node_id, code.name, message or "")
                told = code
            await asyncio.sleep(_PAUSE_S)


def leader_address(raft: RaftDriver) -> ControllerAddress | None:
    """The address of the quorum's leader, as far as this node knows it."""
    leader_id, endpoint = raft.leader_and_epoch.leader_id, raft.leader_endpoint()
    if leader_id is None or endpoint is None:
        return None
    return ControllerAddress(leader_id, endpoint.host, endpoint.port)


def _registration(config: NodeConfig, supported: Mapping[str, tuple[int, int]], incarnation_id: UUID) -> dict[str, Any]:
    return {
        "controller_id": config.node_id,
        "incarnation_id": incarnation_id,
        "zk_migration_ready": False,
        "listeners": [
            {
                "name": one.name,
                "host": one.host,
                "port": one.port,
                "security_protocol": SECURITY_PROTOCOL_IDS[config.protocols[one.name]],
            }
            for one in voter_listeners(config)
        ],
        "features": [
            {"name": name, "min_supported_version": low, "max_supported_version": high}
            for name, (low, high) in sorted(supported.items())
        ],
    }
