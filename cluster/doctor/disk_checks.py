"""Looks for log directories that are full, or soon will be.

Below `log.dirs.reserve.bytes` a broker takes no records, and lets others lead. It takes records again when twice as
much is free. Whether a directory between the two has been full cannot be seen from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...wire.api_keys import ApiKey
from ..client.access.needed_rights import Asked
from ..client.client_errors import Address, ClientError, RefusedError, raise_if_refused
from ..client.cluster_client import NO_ANSWER, ClusterClient
from ..client.peer_protocol import no_answer_reason
from ..command_line.plural import size_text
from .findings import FAILURE, OK, WARNING, Finding, ids

RESERVE = "log.dirs.reserve.bytes"
RESERVE_DEFAULT_BYTES = 16 << 20
"""The default of `RESERVE`, for those who start nodes and do not know the brokers' settings."""
_LITTLE_SPACE_BYTES = 2 * 1024**3
_BROKER_RESOURCE = 4


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is to be said of a broker's log directories, and whether the disk of one of them is full."""

    problems: Sequence[Finding]
    is_full: bool


@dataclass(frozen=True, slots=True)
class _Unseen:
    """Why a broker's log directories cannot be seen, and what to do if that does not say it."""

    why: str
    way_out: str


def space_problem(where: str, free_bytes: int, reserve_bytes: int) -> Finding | None:
    """What is to be said of a log directory with so much free space; a failure if it is full, None if it has enough."""
    free, enough = size_text(free_bytes), size_text(2 * reserve_bytes)
    by_itself = f"writing goes on by itself when {enough} are free"
    way_out = (
        "free space: shorten retention (what it deletes is freed file.delete.delay.ms later, a minute), add space, or "
        f"remove files that are not Raftwerk's; {by_itself}"
    )
    if not free_bytes or free_bytes < reserve_bytes:
        reserved = f", and {RESERVE} keeps {size_text(reserve_bytes)}" if reserve_bytes else ""
        return Finding(FAILURE, f"{where}: the disk is full: {free} free{reserved}; no records are taken", way_out)
    if free_bytes < 2 * reserve_bytes:
        what = f"{where}: the disk is almost full: only {free} free; if it was full, no records are taken yet"
        return Finding(WARNING, what, way_out)
    if free_bytes < _LITTLE_SPACE_BYTES:
        way_out = f"shorten retention, or add space: below {RESERVE}={reserve_bytes} no records are taken"
        return Finding(WARNING, f"{where}: only {free} free", way_out)
    return None


async def examine_disks(client: ClusterClient, brokers: Mapping[int, Address]) -> tuple[list[Finding], frozenset[int]]:
    """Ask these brokers, which answer, for their log directories; what was found, and the brokers with a full one.

    A broker with a full one may be fenced.
    """
    found = await asyncio.gather(*(_examine(client, one, at) for one, at in brokers.items()))
    problems: list[Finding] = []
    full: set[int] = set()
    unseen: dict[_Unseen, list[int]] = {}
    for broker, one in zip(brokers, found, strict=True):
        if isinstance(one, _Unseen):
            unseen.setdefault(one, []).append(broker)
            continue
        problems += one.problems
        if one.is_full:
            full.add(broker)
    for reason, whose in unseen.items():
        what = f"the free space of log directories cannot be seen, of broker{'s' * (len(whose) > 1)} {ids(whose)}"
        problems.append(Finding(WARNING, f"{what}: {reason.why}", reason.way_out))
    if brokers and not problems:
        problems.append(Finding(OK, "the log directories of all brokers that answer have free space"))
    return problems, frozenset(full)


async def _examine(client: ClusterClient, broker: int, at: Address) -> _Seen | _Unseen:
    try:
        return await _look_at(client, broker, at)
    except (ClientError, *NO_ANSWER) as error:
        if isinstance(error, RefusedError) and error.is_of_rights:
            return _Unseen(str(error), "")
        why = str(error) if isinstance(error, ClientError) else no_answer_reason(error)
        return _Unseen(why, "remedy what is reported above, then ask again")


async def _look_at(client: ClusterClient, broker: int, at: Address) -> _Seen:
    resource = {
        "resource_type": _BROKER_RESOURCE,
        "resource_name": str(broker),
        "configuration_keys": [RESERVE],
    }
    fields = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    configs = (await client.request_at(at, ApiKey.DESCRIBE_CONFIGS, 4, fields)).results[0]
    answer = await client.request_at(at, ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": []})
    raise_if_refused(configs.error_code, "its configuration", configs.error_message, Asked(ApiKey.DESCRIBE_CONFIGS))
    raise_if_refused(answer.error_code, "its log directories", asked=Asked(ApiKey.DESCRIBE_LOG_DIRS))
    reserve_bytes = next((int(one.value) for one in configs.configs if str(one.value).isdigit()), 0)
    problems, is_full = [], False
    for row in answer.results:
        where = f"broker {broker}, {row.log_dir}"
        if row.error_code:
            what = f"{where}: the log directory has failed: its replicas are offline"
            problems.append(Finding(FAILURE, what, "repair or replace the disk, and start the broker again"))
            continue
        found = space_problem(where, row.usable_bytes, reserve_bytes) if row.usable_bytes >= 0 else None
        if found is not None:
            problems.append(found)
            is_full |= found.level == FAILURE
    return _Seen(problems, is_full)
