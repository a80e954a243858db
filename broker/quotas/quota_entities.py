"""Which quota holds for a client, and with whom the client shares it (KIP-13, KIP-55, KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from ...controller.metadata.metadata_image import QuotaEntity
from ...controller.security.client_quotas import CLIENT_ID, USER

Quotas: TypeAlias = Mapping[QuotaEntity, Mapping[str, float]]


class Bucket(NamedTuple):
    """Whose requests are counted together: those of a user, of a client id, or of both."""

    user: str | None
    client_id: str | None


def limit_of(quotas: Quotas, key: str, user: str, client_id: str) -> tuple[float, Bucket] | None:
    """The value of the first entity that has this quota, and the bucket; None where none has it.

    The order is Apache Kafka's: what names the user comes first, and in each group what names the client id.
    """
    for user_name in (user, None):
        for client_name in (client_id, None):
            value = _value(quotas, ((CLIENT_ID, client_name), (USER, user_name)), key)
            if value is not None:
                return value, Bucket(user, client_id)
        value = _value(quotas, ((USER, user_name),), key)
        if value is not None:
            return value, Bucket(user, None)
    for client_name in (client_id, None):
        value = _value(quotas, ((CLIENT_ID, client_name),), key)
        if value is not None:
            return value, Bucket(None, client_id)
    return None


def _value(quotas: Quotas, entity: QuotaEntity, key: str) -> float | None:
    values = quotas.get(entity)
    return None if values is None else values.get(key)
