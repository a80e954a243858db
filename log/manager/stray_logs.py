"""Stray logs: the topic is deleted or was made again, or the topic id in the directory is damaged.

A stray log's directory is renamed to end in `-stray` and kept, as the metadata may be what is wrong. Source: KIP-866,
LogManager.isStrayKraftReplica of Apache Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from uuid import UUID

from ..directory_names import STRAY_SUFFIX

_SHOWN_MAX = 10
_logger = logging.getLogger(__name__)


def why_stray(topic_id: UUID | None, wanted: UUID | None) -> str | None:
    """Why a log is stray, None when it is not.

    `topic_id` is the log's (None when unknown), `wanted` that of the partition in the metadata (None: not there).
    """
    if wanted is None:
        return "is not in the metadata"
    return None if topic_id in (None, wanted) else f"has topic id {topic_id}, not {wanted}"


def report_strays(root: str, names: Iterable[str]) -> None:
    """Log which stray logs a log directory has, so that somebody removes them."""
    strays = [name for name in names if name.endswith(STRAY_SUFFIX)]
    if strays:
        shown = ", ".join(strays[:_SHOWN_MAX]) + (" ..." if len(strays) > _SHOWN_MAX else "")
        _logger.warning("%s holds %d logs that were set aside, to be removed by hand: %s", root, len(strays), shown)
