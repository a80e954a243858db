"""Subscriptions to the metrics of clients (KIP-714, resource type CLIENT_METRICS).

The controller checks and keeps subscriptions, and DescribeConfigs shows them, so that Kafka's tools work on them. No
client pushes metrics: this node does not serve GetTelemetrySubscriptions. Apache Kafka does not serve it either when no
reporter for the metrics is configured, so clients expect it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...wire.config_def import INT, LIST, ConfigKey
from ...wire.errors import ErrorCode, ProtocolError

_SELECTORS = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
_INTERVAL_MS = (100, 3_600_000)

CLIENT_METRICS_CONFIGS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey("interval.ms", INT, "300000", "How often clients push, 100 ms to an hour."),
        ConfigKey("match", LIST, "", "The clients to ask: selector=regular expression, ..."),
        ConfigKey("metrics", LIST, "", "The metrics to push, by the beginnings of their names."),
    )
}


def check_client_metrics(values: Mapping[str, str]) -> None:
    """Check valid values for their meaning. Raises `ProtocolError`: INVALID_REQUEST or INVALID_CONFIG."""
    interval = values.get("interval.ms")
    if interval is not None and not _INTERVAL_MS[0] <= int(interval) <= _INTERVAL_MS[1]:
        complaint = f"Invalid value {interval} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, complaint)
    for item in filter(None, values.get("match", "").split(",")):
        selector, _, pattern = item.partition("=")
        if selector.strip() not in _SELECTORS or not pattern or not _is_pattern(pattern.strip()):
            raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {item}")


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
