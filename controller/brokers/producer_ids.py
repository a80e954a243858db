"""AllocateProducerIds: blocks of producer ids for brokers (KIP-730). No two producers of a cluster share an id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..metadata.metadata_image import MetadataImage
from ..metadata.metadata_records import ProducerIdsRecord
from ..result import ControllerResult
from .broker_epoch import check_broker_epoch

if TYPE_CHECKING:
    from ...wire.message_types.transactions import AllocateProducerIdsRequest

PRODUCER_ID_BLOCK_SIZE = 1_000


def allocate_producer_ids(image: MetadataImage, request: AllocateProducerIdsRequest) -> ControllerResult:
    """AllocateProducerIds 0. Raises `ProtocolError(STALE_BROKER_EPOCH)`."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    start = image.next_producer_id
    record = ProducerIdsRecord(request.broker_id, request.broker_epoch, start + PRODUCER_ID_BLOCK_SIZE)
    response = {"error_code": 0, "producer_id_start": start, "producer_id_len": PRODUCER_ID_BLOCK_SIZE}
    return ControllerResult([record], response)
