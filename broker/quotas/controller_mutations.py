"""`controller_mutation_rate`: how many partitions a client may have created and deleted in a second (KIP-599).

The active controller counts. What exceeds the quota is refused with THROTTLING_QUOTA_EXCEEDED where the version of the
request is new enough for its client to know this code ("strict"); for older ones it is carried out, and the client is
throttled afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...controller.metadata.metadata_image import MetadataDelta, MetadataImage
from ...controller.security.client_quotas import CONTROLLER_MUTATION_RATE
from ...wire.errors import ErrorCode, ProtocolError
from .client_limits import ClientLimits
from .quota_entities import Bucket
from .sampled_rate import QuotaWindow
from .throttling import loop_ms
from .token_bucket import TokenBucket

if TYPE_CHECKING:
    from ..network.request import Request


class ControllerMutationQuota:
    """The quota of the client that makes one request."""

    def __init__(self, bucket: TokenBucket, rate: float, *, is_strict: bool) -> None:
        self._bucket = bucket
        self._rate = rate
        self._is_strict = is_strict
        self._throttle_ms = 0

    def count(self, partitions: int) -> None:
        """So many partitions are to be created or deleted. Raises `ProtocolError` where the quota is used up."""
        now_ms = loop_ms()
        if not self._is_strict:
            self._bucket.take(partitions, self._rate, now_ms)
            self._throttle_ms = self._bucket.throttle_ms(self._rate, now_ms)
        elif self._bucket.tokens(self._rate, now_ms) < 0:
            self._throttle_ms = self._bucket.throttle_ms(self._rate, now_ms)
            raise ProtocolError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        else:
            self._bucket.take(partitions, self._rate, now_ms)

    def throttle(self, request: Request) -> None:
        """Throttle the client if the quota was exceeded."""
        if self._throttle_ms > max(request.throttle_ms, 0):
            request.throttle_ms = self._throttle_ms
            request.sink.delay(self._throttle_ms / 1000)


class ControllerMutationQuotas(ClientLimits):
    """The quotas of all clients, at one controller. It follows the committed metadata."""

    def __init__(self, image: MetadataImage, window: QuotaWindow) -> None:
        super().__init__(CONTROLLER_MUTATION_RATE)
        self._window = window
        self._buckets: dict[Bucket, tuple[TokenBucket, float]] = {}
        """With their rates, in the order of their last use."""
        self.on_change(image.client_quotas)

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow a change of the quotas."""
        if delta.changed_quotas:
            self.on_change(image.client_quotas)

    def quota_of(self, request: Request, strict_since: int) -> ControllerMutationQuota | None:
        """The quota for a request, strict from that version of its API on; None where there is none."""
        found = self.limit(request.sink.principal.name, request.client_id or "") if self.is_on else None
        if found is None:
            return None
        rate, key = found
        bucket, _ = self._buckets.pop(key, (None, 0.0))
        if bucket is None:
            self._forget_full(loop_ms())
            bucket = TokenBucket(self._window)
        self._buckets[key] = bucket, rate
        return ControllerMutationQuota(bucket, rate, is_strict=request.api_version >= strict_since)

    def _forget_full(self, now_ms: int) -> None:
        while self._buckets:
            key, (bucket, rate) = next(iter(self._buckets.items()))
            if not bucket.is_full(rate, now_ms):
                return
            del self._buckets[key]
