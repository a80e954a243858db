"""Values of configurations in metadata records, which an earlier build may have written that took more texts."""

from __future__ import annotations

from collections.abc import Mapping

from ...log.topic_configs import TOPIC_CONFIGS
from ...wire.config_def import ConfigKey, InvalidValue
from ..metadata.metadata_image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from ..metadata.metadata_records import ConfigRecord
from .broker_configs import BROKER_CONFIGS
from .group_configs import GROUP_CONFIGS

_TABLES: Mapping[int, Mapping[str, ConfigKey]] = {
    TOPIC_RESOURCE: TOPIC_CONFIGS,
    BROKER_RESOURCE: BROKER_CONFIGS,
    GROUP_RESOURCE: GROUP_CONFIGS,
}


def complaint_about(record: ConfigRecord) -> str | None:
    """Why the recorded value cannot be used; None where it can, and for names that this build does not know."""
    config = _TABLES.get(record.resource_type, {}).get(record.name)
    if config is None or record.value is None:
        return None
    try:
        config.parse(record.value)
    except InvalidValue as error:
        return error.reason
    return None
