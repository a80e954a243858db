"""The quotas of a broker's clients: bytes produced and fetched (KIP-13), and time (KIP-124).

A request that exceeds a quota is carried out and answered at once. The answer says for how long the client is
throttled, and for that time its connection is not read (KIP-219). Apache Kafka sends no records in the answer to a
fetch that exceeds the quota; here it has them, since they are already read, and the client waits afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...controller.metadata.metadata_image import MetadataDelta, MetadataImage
from ...controller.security.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from .client_quota_manager import ClientQuotaManager
from .request_quota import RequestQuota
from .sampled_rate import QuotaWindow

if TYPE_CHECKING:
    from ..network.request import Request

BYTES_MAX = 2**31 - 1


class ClientQuotas:
    """Follows the metadata, and throttles the connections whose requests exceed a quota."""

    def __init__(self, image: MetadataImage, window: QuotaWindow, stopwatch: Callable[[], float]) -> None:
        self.produce = ClientQuotaManager(PRODUCER_BYTE_RATE, window)
        self.fetch = ClientQuotaManager(CONSUMER_BYTE_RATE, window)
        self.request = RequestQuota(window, stopwatch)
        self.managers = (self.produce, self.fetch, self.request)
        self._change(image)

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow a change of the quotas."""
        if delta.changed_quotas:
            self._change(image)

    def _change(self, image: MetadataImage) -> None:
        for manager in self.managers:
            manager.on_change(image.client_quotas)


def fetch_bytes_max(manager: ClientQuotaManager, request: Request) -> int:
    """The largest answer to a fetch of this client: what its quota gives for the whole window, at least one byte."""
    most = manager.window_max(request.sink.principal.name, request.client_id or "")
    return BYTES_MAX if most is None else int(max(min(most, BYTES_MAX), 1))
