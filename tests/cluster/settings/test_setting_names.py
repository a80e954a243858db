"""What is told of names of settings and quotas that do not exist, or that others have."""

from __future__ import annotations

import pytest

from raftwerk.cluster.settings.setting_names import way_out_of_names, way_out_of_quotas
from raftwerk.controller.metadata.metadata_image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)


@pytest.mark.parametrize(
    ("resource_type", "name", "told"),
    [
        (TOPIC_RESOURCE, "retention.mss", "did you mean retention.ms?"),
        (TOPIC_RESOURCE, "log.retention.ms", "did you mean retention.ms?"),
        (TOPIC_RESOURCE, "message.max.bytes", "did you mean max.message.bytes?"),
        (TOPIC_RESOURCE, "default.replication.factor", "configs show --topic NAME --all lists"),
        (BROKER_RESOURCE, "log.retention.mss", "did you mean log.retention.ms?"),
        (BROKER_RESOURCE, "retention.ms", "did you mean log.retention.ms?"),
        (BROKER_RESOURCE, "max.message.bytes", "did you mean message.max.bytes?"),
        (BROKER_RESOURCE, "listeners", "set listeners in the nodes' settings files, which they read when they start"),
        (BROKER_RESOURCE, "log.retention.hours", "set log.retention.ms, which a running cluster takes"),
        (BROKER_RESOURCE, "log.roll.jitter.hours", "set log.roll.jitter.ms, which a running cluster takes"),
        (BROKER_RESOURCE, "nonsense", "configs show --broker ID --all lists"),
        (GROUP_RESOURCE, "consumer.session.timeot.ms", "did you mean consumer.session.timeout.ms?"),
        (GROUP_RESOURCE, "consumer.poem", "configs show --group ID --all lists"),
        (BROKER_LOGGER_RESOURCE, "raftwerk.grups", "did you mean raftwerk.groups?"),
        (BROKER_LOGGER_RESOURCE, "nobody", "configs show --loggers ID --all lists"),
        (CLIENT_METRICS_RESOURCE, "metric", "did you mean metrics?"),
        (CLIENT_METRICS_RESOURCE, "color", "the settings are interval.ms, match, metrics"),
    ],
)
def test_the_setting_that_was_meant(resource_type: int, name: str, told: str) -> None:
    assert told in str(way_out_of_names(resource_type, [name]))


def test_a_group_s_setting_without_the_kind_of_the_group() -> None:
    assert "did you mean consumer.session.timeout.ms" in str(way_out_of_names(GROUP_RESOURCE, ["session.timeout.ms"]))


def test_known_names_have_no_way_out() -> None:
    assert way_out_of_names(TOPIC_RESOURCE, ["retention.ms", "cleanup.policy"]) is None
    levels = "the levels are TRACE, DEBUG, INFO, WARN, ERROR, FATAL"
    assert way_out_of_names(BROKER_LOGGER_RESOURCE, ["raftwerk.raft"]) == levels, "a level is wrong"
    assert way_out_of_quotas(["user"], ["producer_byte_rate", "request_percentage"]) is None
    assert way_out_of_quotas(["ip"], ["connection_creation_rate"]) is None


@pytest.mark.parametrize(
    ("entity", "name", "told"),
    [
        ("user", "producr_byte_rate", "did you mean producer_byte_rate?"),
        ("client-id", "request.percentage", "did you mean request_percentage?"),
        ("ip", "connection_rate", "the quotas are connection_creation_rate"),
        ("ip", "conection_creation_rate", "did you mean connection_creation_rate?"),
        ("user", "connection_creation_rate", "connection_creation_rate is for addresses (--ip)"),
        ("ip", "producer_byte_rate", "producer_byte_rate is for users and client ids (--user, --client-id)"),
        ("user", "poems", "the quotas are producer_byte_rate, consumer_byte_rate, request_percentage, controller_"),
    ],
)
def test_the_quota_that_was_meant(entity: str, name: str, told: str) -> None:
    assert told in str(way_out_of_quotas([entity], [name]))
