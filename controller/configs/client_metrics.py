"""Subscriptions to the metrics of clients (KIP-714, resource type CLIENT_METRICS).

They are kept, and shown, and refused where they make no sense, so that Kafka's tools can be tried on them. No client is
asked for its metrics: GetTelemetrySubscriptions is not among the APIs served, as in Apache Kafka while no reporter that
could take the metrics is configured, and clients are content with that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...wire.errors import ErrorCode, ProtocolError
from .topic_config_table import Anything, ConfigType, TopicConfig

_SELECTORS = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
_INTERVAL_MS = (100, 3_600_000)

CLIENT_METRICS_CONFIGS: Mapping[str, TopicConfig] = {
    row.name: row
    for row in (
        TopicConfig(
            "interval.ms", ConfigType.INT, "300000", Anything(), doc="How often clients push, 100 ms to an hour."
        ),
        TopicConfig("match", ConfigType.LIST, "", Anything(), doc="Which clients: selector=regular expression, ..."),
        TopicConfig("metrics", ConfigType.LIST, "", Anything(), doc="Which metrics, by the beginnings of their names."),
    )
}


def check_client_metrics(values: Mapping[str, str]) -> None:
    """Raise `ProtocolError` for values that are of their type and make no sense."""
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
    except re.error:
        return False
    return True
