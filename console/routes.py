"""What each path of the console's HTTP interface does: reads by GET, changes by POST."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from ..cluster.client.transactions.transaction_client import HANGS_AFTER_S
from .errors import RequestRefusedError
from .fields import Fields
from .records.records_page import RecordsWanted
from .service import ConsoleService


class Query:
    """The parameters of a URL."""

    def __init__(self, query_string: bytes) -> None:
        self._found = parse_qs(query_string.decode("ascii", "replace"))

    def word(self, name: str, default: str = "") -> str:
        """The last value of a parameter."""
        return self._found.get(name, [default])[-1]

    def number(self, name: str, default: int, *, digits: int = 9) -> int:
        """A parameter that is a whole number from 0 on."""
        text = self.word(name)
        if text and not (text.isascii() and text.isdecimal() and len(text) <= digits):
            raise RequestRefusedError(400, f"{name} is a whole number")
        return int(text) if text else default


async def answer(service: ConsoleService, path: list[str], query: Query) -> Any:
    """The answer to a GET."""
    match path:
        case ["api", "about"]:
            return service.about()
        case ["api", "topics", topic]:
            return await service.topics.topic(topic)
        case ["api", "topics", topic, "records"]:
            return await service.records(_records_wanted(topic, query))
        case ["api", "topics", topic, "replicas"]:
            return await service.replicas(topic)
        case ["api", "requests"]:
            return await service.requests(query.number("since_ms", 0, digits=15))
        case ["api", "groups"]:
            return await service.groups.groups()
        case ["api", "groups", group]:
            return await service.groups.group(group)
        case ["api", "transactions"]:
            return await service.transactions.list()
        case ["api", "transactions", transactional_id]:
            return await service.transactions.describe(transactional_id)
        case ["api", "hanging-transactions"]:
            return await service.transactions.hanging(query.number("older_than_s", HANGS_AFTER_S))
        case ["api", "acls"]:
            return await service.access.acls()
        case ["api", "users"]:
            return await service.access.users()
        case ["api", "quotas"]:
            return await service.access.quotas()
        case ["api", "log-dirs"]:
            return await service.storage.log_dirs()
        case ["api", "reassignments"]:
            return await service.storage.reassignments()
        case ["api", "chaos"]:
            return service.chaos()
        case ["api", "chaos", "faults"]:
            return await service.chaos_faults()
    raise _nothing()


async def change(service: ConsoleService, path: list[str], fields: Fields) -> Any:
    """Carry out a POST, and the answer to it."""
    match path:
        case ["api", "topics", *rest]:
            return await _change_topic(service, rest, fields)
        case ["api", "groups", group, "reset"]:
            return await service.groups.reset_group(group, fields)
        case ["api", "groups", group, "delete"]:
            return await service.groups.delete_group(group)
        case ["api", "transactions", transactional_id, "terminate"]:
            return await service.transactions.terminate(transactional_id, fields)
        case ["api", "hanging-transactions", "abort"]:
            return await service.transactions.abort(fields)
        case ["api", "acls"]:
            return await service.access.add_acls(fields)
        case ["api", "acls", "remove"]:
            return await service.access.remove_acl(fields)
        case ["api", "users"]:
            return await service.access.set_password(fields)
        case ["api", "users", user, "remove"]:
            return await service.access.remove_user(user, fields)
        case ["api", "quotas"]:
            return await service.access.alter_quotas(fields)
        case ["api", "reassignments"]:
            return await service.storage.reassign(fields)
        case ["api", "reassignments", "cancel"]:
            return await service.storage.cancel(fields)
        case ["api", "reassignments", "unthrottle"]:
            return await service.storage.unthrottle()
        case ["api", "nodes", node, fault] if node.isdecimal() and len(node) < 10:
            return await service.fault(fault, int(node), fields)
        case ["api", "chaos", "start"]:
            return await service.begin_chaos(fields)
        case ["api", "chaos", "stop"]:
            return await service.end_chaos()
        case ["api", "probe", "start" | "stop" as what]:
            return await service.probing(start=what == "start")
    raise _nothing()


async def _change_topic(service: ConsoleService, path: list[str], fields: Fields) -> Any:
    match path:
        case []:
            return await service.topics.create_topic(fields)
        case [topic, "delete"]:
            return await service.topics.delete_topic(topic)
        case [topic, "partitions"]:
            return await service.topics.grow_topic(topic, fields)
        case [topic, "configs"]:
            return await service.topics.alter_topic(topic, fields)
        case [topic, "records"]:
            return await service.topics.produce(topic, fields)
    raise _nothing()


def _nothing() -> RequestRefusedError:
    return RequestRefusedError(404, "there is nothing at this address")


def _records_wanted(topic: str, query: Query) -> RecordsWanted:
    partition = query.number("partition", -1)
    limit, start = query.number("limit", 50), query.word("from", "latest")
    return RecordsWanted(topic, None if partition < 0 else partition, start, limit, query.word("text"))
