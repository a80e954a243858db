"""The check that a request comes from the incarnation of a broker that is registered now."""

from __future__ import annotations

from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import MetadataImage


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> None:
    """Raise `ProtocolError(STALE_BROKER_EPOCH)` for an unknown broker, and for another incarnation of it."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ProtocolError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        sometimes(True, "the controller refused a request of a former incarnation of a broker")
        message = f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        raise ProtocolError(ErrorCode.STALE_BROKER_EPOCH, message)
