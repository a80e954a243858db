"""Logs that are not what their directory's name says: of topics that are gone or came again, or with a damaged id.

That the metadata does not know one may be an error of its own. So they are renamed to end in `-stray`, and stay, as
Apache Kafka has it (KIP-866, LogManager.isStrayKraftReplica). Where a log was displaced that this node left there by a
clean stop, the partition had its data there, or never had any; in any case nothing empty must pass for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from uuid import UUID

STRAY_SUFFIX = "-stray"
_SHOWN_MAX = 10
_logger = logging.getLogger(__name__)


def why_stray(topic_id: UUID | None, wanted: UUID | None) -> str | None:
    """What is wrong with a log of `topic_id` (None: it does not know) in the place of `wanted` (None: of nothing)."""
    if wanted is None:
        return "is not in the metadata"
    return None if topic_id in (None, wanted) else f"has topic id {topic_id}, not {wanted}"


def report_strays(root: str, names: Iterable[str]) -> None:
    """Say that there are some in a log directory; nobody else looks at them."""
    strays = [name for name in names if name.endswith(STRAY_SUFFIX)]
    if strays:
        shown = ", ".join(strays[:_SHOWN_MAX]) + (" ..." if len(strays) > _SHOWN_MAX else "")
        _logger.warning("%s holds %d logs that were set aside, to be removed by hand: %s", root, len(strays), shown)
