"""ListTransactions: the transactional ids that this broker coordinates, filtered (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....runtime.incremental_work import PLAIN_STEP, Pace, Work, sort_in_steps
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Result
from ...groups.consumer.topics import compile_regex
from ...network.request import Request
from ...services import BrokerServices
from ...transactions.transaction_metadata import STATES_BY_LABEL, TransactionMetadata

if TYPE_CHECKING:
    from ....wire.message_types.transactions import ListTransactionsRequest

_Filter = Callable[[str, TransactionMetadata], bool]


def handle(services: BrokerServices, request: Request, message: ListTransactionsRequest) -> Work[Result]:
    """The ids that pass all filters, and the names in the filter of states that are no states."""
    passes = _filter(message, services.transactions.wall_ms())
    may_see = services.authorization.permission(
        request, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, logs_denial=False
    )
    rows: list[dict[str, Any]] = []
    pace = Pace()
    for shard in services.transactions.loaded_shards():
        for transactional_id in (yield from sort_in_steps(list(shard.entries), pace)):
            value = shard.current(transactional_id)
            if value is not None and passes(transactional_id, value) and may_see(transactional_id):
                rows.append(
                    {
                        "transactional_id": transactional_id,
                        "producer_id": value.producer_id,
                        "transaction_state": value.state.label,
                    }
                )
            if pace.ends_step():
                yield PLAIN_STEP
    unknown = [name for name in message.state_filters if name not in STATES_BY_LABEL]
    return {"error_code": 0, "unknown_state_filters": unknown, "transaction_states": rows}


def _filter(message: ListTransactionsRequest, now_ms: int) -> _Filter:
    """A test of one id. Raises INVALID_REGULAR_EXPRESSION."""
    producer_ids, states = frozenset(message.producer_id_filters), frozenset(message.state_filters)
    duration_ms = message.get("duration_filter", -1)
    pattern = message.get("transactional_id_pattern", None)
    compiled = compile_regex(pattern) if pattern else None
    if pattern and compiled is None:
        text = f"Transaction ID pattern {pattern} is not a valid regular expression."
        raise ProtocolError(ErrorCode.INVALID_REGULAR_EXPRESSION, text)

    def passes(transactional_id: str, value: TransactionMetadata) -> bool:
        return (
            (not producer_ids or value.producer_id in producer_ids)
            and (not states or value.state.label in states)
            and (duration_ms < 0 or now_ms - value.start_ms > duration_ms)
            and (compiled is None or compiled.fullmatch(transactional_id) is not None)
        )

    return passes
