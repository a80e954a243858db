"""The errors of the clients, with texts for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from ...wire.api_keys import ApiKey
from ...wire.errors import ErrorCode
from ..command_line.plural import counted, some_of
from .access.needed_rights import Asked, NeededRight, missing_right
from .error_sentences import error_sentence, meaning_of

_RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)

NAME_A_BROKER = "name that of a broker"
CONTROLLER_LISTENER = f"is the listener of a controller: {NAME_A_BROKER}"
"""Why a node cannot answer what clients ask of brokers."""
QUORUM_APIS = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER})
"""What a client may also ask of a controller's own listener (KIP-919)."""
CONTROLLER_APIS = QUORUM_APIS | {
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
}
"""What a broker asks the active controller for before it answers."""

_OF_RIGHTS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)

_NAMED = 6
"""So many partitions are named in one sentence."""
NO_LEADER = "no broker leads this partition"
WHO_IS_DOWN = "raftwerk doctor shows which nodes are to be started or woken"
"""What to do where nodes do not answer that have to."""

Address: TypeAlias = tuple[str, int]
"""Host and port."""


class ClientError(Exception):
    """A request was refused, or no broker answered."""


class WrongArgumentError(ClientError):
    """An argument cannot mean anything to any cluster; no broker was asked."""


class UnreachableError(ClientError):
    """No broker answers.

    `reasons` has what each address did, as "refuses the connection". Those that are `silent` took the connection
    and did not answer in time; those of `closing` closed it instead of an answer.
    """

    summary = "no broker answers"

    def __init__(
        self,
        reasons: Mapping[Address, str],
        *,
        silent: Iterable[Address] = (),
        closing: Iterable[Address] = (),
        is_explained: bool = False,
    ) -> None:
        self.reasons = reasons
        self.silent = tuple(silent)
        self.closing = tuple(closing)
        self.is_explained = is_explained or set(reasons.values()) == {CONTROLLER_LISTENER}
        """Whether the reasons say what to do."""
        super().__init__(f"{self.summary}: {_told_once(reasons)}")


def _told_once(reasons: Mapping[Address, str]) -> str:
    """What each address did; a reason that several have is told of the first."""
    by_reason: dict[str, list[str]] = {}
    for (host, port), reason in reasons.items():
        by_reason.setdefault(reason, []).append(f"{host}:{port}")
    told = []
    for reason, (first, *others) in by_reason.items():
        told.append(f"{first} {reason}")
        if others:
            told.append(f"likewise {', '.join(others)}")
    return "; ".join(told)


class NoControllerError(UnreachableError):
    """Brokers answer, but not to a request that only the active controller can answer: they reach none."""

    summary = "no controller is active that the brokers reach"


class NotServedError(UnreachableError):
    """A broker answers other requests and closes the connection instead of an answer to this one."""

    summary = "no broker can serve this request"


class NotLoggedInError(UnreachableError):
    """No broker takes us as we log in, or do not log in. `way_out` is about the client's properties."""

    summary = "cannot log in"

    def __init__(self, reasons: Mapping[Address, str], way_out: str) -> None:
        super().__init__(reasons)
        self.way_out = way_out


class OtherClusterError(UnreachableError):
    """Another cluster has the addresses of the one that was meant, of which no broker answers.

    Nothing was asked of it but its cluster id. `way_out` says what to do.
    """

    summary = "no broker of the cluster answers"

    def __init__(self, reasons: Mapping[Address, str], way_out: str) -> None:
        super().__init__(reasons, is_explained=True)
        self.way_out = way_out

    def __str__(self) -> str:
        return f"{super().__str__()}; {self.way_out}"


class WrongCredentialsError(NotLoggedInError):
    """A broker looked at the credentials and does not take them, and no other broker takes them either.

    Any other `NotLoggedInError` says nothing about the password: a TLS handshake that fails, a mechanism that is not
    offered, a token that cannot be had.
    """


class RefusedError(ClientError):
    """The cluster answered with an error code. The text says what it means and what to do.

    A `way_out` is told instead of that of the code. A `note` says what else became of the request. What was `asked`
    tells which right is missing, if it is a matter of rights.
    """

    def __init__(
        self,
        code: int,
        what: str,
        message: str | None = None,
        way_out: str | None = None,
        note: str = "",
        asked: Asked | None = None,
    ) -> None:
        self.code = code
        self._asked = asked
        self._what = what
        self._message = message
        self._way_out = way_out
        self._note = note
        right = self.missing_right
        told = way_out or (right.way_out if right else None)
        super().__init__(f"{what}: {error_sentence(code, message, told)}{note and f'; {note}'}")

    @property
    def missing_right(self) -> NeededRight | None:
        """The right that the user lacks; None where it is no matter of rights, or not known which one."""
        return missing_right(self.code, self._asked)

    @property
    def reason(self) -> str:
        """The broker's message or what the code means, without a way out."""
        return (self._message or meaning_of(self.code)).rstrip(".")

    @property
    def refusal(self) -> str:
        """What was refused and why, without a way out."""
        return f"{self._what}: {self.reason}"

    @property
    def is_of_rights(self) -> bool:
        """Whether the user has not the right to it."""
        return self.code in _OF_RIGHTS

    def with_way_out(self, way_out: str) -> RefusedError:
        """The same refusal with another way out."""
        return RefusedError(self.code, self._what, self._message, way_out, self._note, self._asked)

    def with_note(self, note: str) -> RefusedError:
        """The same refusal with a note on what else became of the request."""
        return RefusedError(self.code, self._what, self._message, self._way_out, note, self._asked)


def raise_if_refused(code: int, what: str, message: str | None = None, asked: Asked | None = None) -> None:
    """Raise `RefusedError` unless the code is NONE."""
    if code:
        raise RefusedError(code, what, message, asked=asked)


def refused_in_part(refusals: Sequence[RefusedError], done: Mapping[str, Sequence[str]]) -> RefusedError:
    """The first of the refusals, with a note of the others and of what was done all the same.

    `done` has names by what became of them, such as `started`.
    """
    notes = [f"{counted(len(refusals) - 1, 'other')} refused, too"] if len(refusals) > 1 else []
    notes += [f"{became}: {some_of(names, _NAMED)}" for became, names in done.items() if names]
    return refusals[0].with_note("; ".join(notes))


class OffsetOutOfRangeError(RefusedError):
    """The log of a partition does not have the offset from which records were to be read."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self.partition = partition
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic}-{partition}", f"offset {offset} is not in the log")


def no_such_topic(topic: str) -> RefusedError:
    """The error for a topic that brokers do not know."""
    return RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic}", "there is no such topic")


def no_such_partition(topic: str, partition: int, count: int) -> ClientError:
    """The error for a partition that a topic of `count` partitions does not have."""
    there = "its only partition is 0" if count == 1 else f"its partitions are 0 to {count - 1}"
    return ClientError(f"topic {topic} has no partition {partition}: {there}")


def partitions_text(topic: str, why: Mapping[int, str]) -> str:
    """Partitions with what holds them up, those with the same reason together: `orders-0, orders-2: no leader`."""
    return "; ".join(sentences_by_reason({f"{topic}-{one}": reason for one, reason in sorted(why.items())}))


def sentences_by_reason(why: Mapping[str, str]) -> list[str]:
    """A sentence for each reason, with the names that have it in front: `orders-0, orders-2: no leader`."""
    together: dict[str, list[str]] = {}
    for name, reason in why.items():
        together.setdefault(reason, []).append(name)
    return [f"{some_of(names, _NAMED)}: {reason}" for reason, names in together.items()]


class SilentNodesError(ClientError):
    """Nodes do not answer, and no other node can answer for them. `silence` says which ones, without a way out."""

    def __init__(self, silence: str) -> None:
        self.silence = silence
        super().__init__(f"{silence}; {WHO_IS_DOWN}")


class NoLeaderAnswersError(SilentNodesError):
    """Partitions have no leader that answers for them. `why` has the reason for each, which names the leader.

    `found` has the offsets of the others, for which a leader answered.
    """

    def __init__(self, topic: str, why: Mapping[int, str], found: Mapping[int, int]) -> None:
        self.why = why
        self.found = found
        super().__init__(partitions_text(topic, why))


def is_retriable(code: int) -> bool:
    """Whether the same request may succeed later."""
    return code in _RETRIABLE


class DamagedBatchError(ClientError):
    """A batch of the leader's copy of a partition is damaged on its disk. `leader` is its node id."""

    def __init__(self, partition: str, leader: int, offset: int, reason: str) -> None:
        self.partition = partition
        self.leader = leader
        super().__init__(
            f"{partition}: the batch at offset {offset} is damaged in the log of node {leader}: {reason}; if another "
            f"replica is sound, the node mends it by itself; if none is, restore a copy, or stop node {leader} and cut "
            "off what is damaged and what follows it (raftwerk log repair DIR --execute)"
        )
