"""A principal in an envelope, as bytes (KIP-590; Kafka: `DefaultKafkaPrincipalBuilder`)."""

from __future__ import annotations

from ..runtime.ports import Buffer
from ..wire.codec import decode_data, encode_data
from ..wire.errors import WireFormatError
from .principals import KafkaPrincipal

_VERSION = 0
_VERSION_BYTES = 2


def serialize(principal: KafkaPrincipal) -> bytes:
    """The version of the schema, then Kafka's DefaultPrincipalData."""
    fields = {
        "type": principal.principal_type,
        "name": principal.name,
        "token_authenticated": principal.is_token_authenticated,
    }
    return _VERSION.to_bytes(_VERSION_BYTES, "big") + encode_data("default_principal_data", _VERSION, fields)


def deserialize(data: Buffer | None) -> KafkaPrincipal:
    """The principal of `serialize`. Raises ValueError."""
    raw = bytes(data or b"")
    version = int.from_bytes(raw[:_VERSION_BYTES], "big", signed=True)
    if len(raw) < _VERSION_BYTES or version != _VERSION:
        raise ValueError(f"version {version} of a principal's data is not supported")
    try:
        found = decode_data("default_principal_data", version, raw, _VERSION_BYTES)
    except WireFormatError as error:
        raise ValueError(str(error)) from None
    return KafkaPrincipal(found.type, found.name, found.token_authenticated)
