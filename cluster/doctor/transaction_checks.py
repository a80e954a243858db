"""Looks for transactions that hang, and for those that have been open for long."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

from ...runtime.clock import SystemClock
from ...wire.api_keys import ApiKey
from ..client.access.needed_rights import Asked
from ..client.client_errors import ClientError, SilentNodesError, raise_if_refused
from ..client.cluster_client import NO_ANSWER, BrokerView, ClusterClient, ClusterView
from ..client.peer_protocol import silent_broker
from ..client.transactions.transaction_client import OpenTransaction, TransactionClient, TransactionView
from ..command_line.plural import counted
from .findings import FAILURE, OK, WARNING, Finding, ids, some

_BROKER_RESOURCE = 4
_TRANSACTION_MAX_TIMEOUT = "transaction.max.timeout.ms"
LONG_OPEN_MS = 60_000
"""How long a transaction may be open before it is reported."""


async def examine_transactions(client: ClusterClient, view: ClusterView, silent: Collection[int]) -> list[Finding]:
    """Look for transactions that hang, and for those that have been open for long.

    The brokers that are `silent` are not asked, which takes long: what only they could tell is not seen. One that is
    fenced leads nothing and coordinates nothing, so that it is not missed.
    """
    leading = {row.leader for topic in view.topics for row in topic.partitions}
    missed = [one for one in sorted(silent) if one in leading]
    if missed:
        who = f"broker {missed[0]} does" if len(missed) == 1 else f"brokers {ids(missed)} do"
        return [_not_seen(f"{who} not answer")]
    hanging = await _hanging_transactions(client, view, silent)
    return [*hanging, *await _long_transactions(client, is_told=any(one.level == WARNING for one in hanging))]


async def _hanging_transactions(client: ClusterClient, view: ClusterView, silent: Collection[int]) -> list[Finding]:
    """Report transactions that are open for longer than any may be, and that no coordinator will end."""
    try:
        limit_ms = await _transaction_max_timeout_ms(client, [one for one in view.brokers if one.node_id not in silent])
        hanging = await TransactionClient(client).find_hanging(SystemClock().wall_ms() - limit_ms)
    except (ClientError, *NO_ANSWER) as error:
        return [_not_seen(error.silence if isinstance(error, SilentNodesError) else str(error))]
    found = [_not_seen("; ".join(hanging.missing))] if hanging.missing else []
    if not hanging.rows:
        return found or [Finding(OK, "no transaction hangs")]
    names = [f"{one.partition} from offset {one.start_offset} on" for one in hanging.rows]
    what = f"{counted(len(hanging.rows), 'transaction')} that no coordinator will end: {some(names)}"
    way_out = "raftwerk transactions find-hanging shows the commands that abort them"
    return [Finding(FAILURE, f"{what}: read_committed consumers wait there", way_out), *found]


async def _long_transactions(client: ClusterClient, *, is_told: bool) -> list[Finding]:
    """Warn of transactions that have been open for long within their time-outs: last stable offsets stand still.

    `is_told`: it was said already that not all brokers tell of their transactions.
    """
    try:
        found = await TransactionClient(client).long_open(LONG_OPEN_MS)
    except (ClientError, *NO_ANSWER) as error:
        why = error.silence if isinstance(error, SilentNodesError) else str(error)
        return [] if is_told else [_not_seen(why, "have been open for long")]
    now_ms = SystemClock().wall_ms()
    return [long_transaction(view, parts, now_ms) for view, parts in found]


def _not_seen(why: str, what: str = "hang") -> Finding:
    way_out = "remedy what is reported above, then ask again"
    return Finding(WARNING, f"whether transactions {what} cannot be seen: {why}", way_out)


def long_transaction(view: TransactionView, parts: Sequence[OpenTransaction], now_ms: int) -> Finding:
    """What is to be said of a transaction that has been open for long at `now_ms`, and how it ends."""
    names = some([f"{one.partition} from offset {one.start_offset} on" for one in parts])
    since = datetime.fromtimestamp(view.start_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    who = f"transactional id {view.transactional_id} (producer {view.producer_id})"
    what = f"the last stable offset stands still since {since}, for {_span(now_ms - view.start_ms)}, in {names}"
    if view.state != "Ongoing":
        what = f"{what}: the transaction of {who} is decided ({view.state}), and its markers are not written"
        return Finding(WARNING, what, "their leaders must answer: remedy what is reported above, or see their logs")
    left_ms = view.start_ms + view.timeout_ms - now_ms
    ends = f"in {_span(left_ms)} or soon after" if left_ms > 0 else "in a moment"
    way_out = (
        f"let its application commit or abort; raftwerk transactions terminate {view.transactional_id} aborts it now "
        f"and fences its producer; the coordinator aborts it {ends}: its time-out is {_span(view.timeout_ms)}"
    )
    return Finding(WARNING, f"{what}: {who} has a transaction open, and read_committed consumers wait there", way_out)


def _span(ms: int) -> str:
    """A time in its greatest two units: `3 min 5 s`."""
    seconds = max(0, ms) // 1000
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    parts: list[str] = []
    for name, size in units:
        count, seconds = divmod(seconds, size)
        if count or (name == "s" and not parts):
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])


async def _transaction_max_timeout_ms(client: ClusterClient, brokers: Iterable[BrokerView]) -> int:
    """The longest time, in milliseconds, for which a coordinator among these brokers keeps a transaction open."""
    longest_ms = 0
    for broker in brokers:
        resource = {
            "resource_type": _BROKER_RESOURCE,
            "resource_name": str(broker.node_id),
            "configuration_keys": [_TRANSACTION_MAX_TIMEOUT],
        }
        fields = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
        try:
            answer = await client.request_node(broker.node_id, ApiKey.DESCRIBE_CONFIGS, 4, fields)
        except NO_ANSWER as error:
            raise silent_broker(client.broker_text(broker.node_id), error) from None
        for row in answer.results:
            what = f"the configuration of broker {broker.node_id}"
            raise_if_refused(row.error_code, what, row.error_message, Asked(ApiKey.DESCRIBE_CONFIGS))
            longest_ms = max([longest_ms, *(int(one.value) for one in row.configs)])
    return longest_ms
