"""What replica managers are set to where nobody says otherwise."""

from __future__ import annotations

import pytest

from raftwerk.controller.configs.broker_configs import BROKER_CONFIGS
from raftwerk.isr.ports import ReplicaManagerConfig

SECONDS = 1_000
"""Milliseconds of one."""


@pytest.mark.parametrize(
    ("field", "name", "unit"),
    [
        ("replica_lag_time_max_ms", "replica.lag.time.max.ms", 1),
        ("replica_fetch_wait_max_ms", "replica.fetch.wait.max.ms", 1),
        ("replica_fetch_min_bytes", "replica.fetch.min.bytes", 1),
        ("replica_fetch_max_bytes", "replica.fetch.max.bytes", 1),
        ("replica_fetch_response_max_bytes", "replica.fetch.response.max.bytes", 1),
        ("replica_fetch_backoff_max_ms", "replica.fetch.backoff.ms", 1),
        ("replica_socket_timeout_ms", "replica.socket.timeout.ms", 1),
        ("fetch_session_slots", "max.incremental.fetch.session.cache.slots", 1),
        ("high_watermark_checkpoint_interval_ms", "replica.high.watermark.checkpoint.interval.ms", 1),
        ("replication_quota_window_num", "replication.quota.window.num", 1),
        ("replication_quota_window_size_ms", "replication.quota.window.size.seconds", SECONDS),
        ("dirs_quota_window_num", "alter.log.dirs.replication.quota.window.num", 1),
        ("dirs_quota_window_size_ms", "alter.log.dirs.replication.quota.window.size.seconds", SECONDS),
    ],
)
def test_a_replica_manager_that_is_made_by_hand_has_the_defaults_of_a_broker(field: str, name: str, unit: int) -> None:
    """Tests and simulations make one without a configuration file. What they find must hold for a real broker, too."""
    assert getattr(ReplicaManagerConfig(1), field) == BROKER_CONFIGS[name].default_value * unit
