"""Certificates that a client gives a broker's listeners: tried at the broker, for who may alter the cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.broker.broker_harness import Harness
from support.security.certificates import Authority

from raftwerk.broker.authorization import Authorization
from raftwerk.cluster.settings.current_config import CurrentConfig
from raftwerk.cluster.settings.listener_security import STORE_BYTES_MAX, certificates_complaint
from raftwerk.cluster.settings.node_config import NodeConfig
from raftwerk.runtime.loop import real_runtime
from raftwerk.security.authorizer.standard_authorizer import StandardAuthorizer
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

BROKER = 4
KEY_STORE = "listener.name.client.ssl.keystore.location"
INCREMENTAL, REPLACEMENT = (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1), (ApiKey.ALTER_CONFIGS, 2)


class Tried:
    """A broker that refuses all certificates, and keeps the settings that it tried."""

    def __init__(self, authorization: Authorization | None = None) -> None:
        self.values: list[dict[str, str]] = []
        self._harness = Harness(authorization=authorization, certificates_complaint=self._refuse)

    def _refuse(self, values: Mapping[str, str]) -> str:
        self.values.append(dict(values))
        return "they are bad"

    def alter(self, api: tuple[ApiKey, int], broker: str) -> tuple[int, str | None]:
        rows = [{"name": KEY_STORE, "config_operation": 0, "value": "/etc/shadow"}]
        resources = [{"resource_type": BROKER, "resource_name": broker, "configs": rows}]
        fields = {"resources": resources, "validate_only": False}
        answer: Any = asyncio.run(self._harness.call(*api, fields)).responses[0]
        return answer.error_code, answer.error_message


@pytest.mark.parametrize("api", [INCREMENTAL, REPLACEMENT], ids=lambda api: api[0].name)
def test_certificates_are_tried_before_the_controller_is_told(api: tuple[ApiKey, int]) -> None:
    broker = Tried()
    refusal = "Validation of dynamic config update failed: they are bad"
    assert broker.alter(api, "1") == (ErrorCode.INVALID_REQUEST, refusal)
    assert broker.values == [{KEY_STORE: "/etc/shadow"}]
    assert broker.alter(api, "7") == (ErrorCode.INVALID_REQUEST, "Unexpected node id. Expected 1, but received 7")


@pytest.mark.parametrize("api", [INCREMENTAL, REPLACEMENT], ids=lambda api: api[0].name)
def test_certificates_are_not_tried_for_a_client_without_the_right(api: tuple[ApiKey, int]) -> None:
    """It would learn which files the broker has, and could let it read one without an end."""
    broker = Tried(Authorization(StandardAuthorizer()))
    assert broker.alter(api, "1") == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    assert not broker.values


def test_a_key_store_is_a_regular_file_of_a_moderate_size(tmp_path: Path) -> None:
    """A FIFO that nobody writes to would stop the broker, and /dev/zero take all its memory."""
    authority = Authority(tmp_path)
    node = str(authority.issue("node"))
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "CLIENT://localhost:9092,CONTROLLER://localhost:9093",
        "listener.security.protocol.map": "CLIENT:SSL,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "CLIENT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": node,
        "log.dirs": str(tmp_path / "data"),
    }
    current = CurrentConfig(NodeConfig.from_properties(properties))
    assert certificates_complaint(current, {KEY_STORE: node}, real_runtime()) is None
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(bytes(STORE_BYTES_MAX + 1))
    for path, complaint in (
        (str(tmp_path / "fifo"), "it is not a regular file"),
        ("/dev/zero", "it is not a regular file"),
        (str(tmp_path / "large"), f"it has more than {STORE_BYTES_MAX} bytes"),
    ):
        told = certificates_complaint(current, {KEY_STORE: path}, real_runtime())
        assert told == f"listener CLIENT: cannot read {path}: {complaint}"
