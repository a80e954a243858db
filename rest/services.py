"""What the handlers of requests use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .record_producer import RecordProducer
    from .rest_cluster import RestCluster
    from .serialization.record_schemas import RecordSchemas
    from .v2.consumer_instances import OwnedInstances


@dataclass(frozen=True, slots=True)
class Services:
    """The cluster, the producer, and the consumer instances of version 2, as one principal has them.

    `schemas` are those of a registry, if there is one.
    """

    cluster: RestCluster
    producer: RecordProducer
    consumers: OwnedInstances
    schemas: RecordSchemas | None = None
