"""A conversation of raw transactional requests with a cluster, written as a text that is compared whole.

Each line of the transcript is a step and, after `->`, what the cluster answered. A step begins with a word of `STEPS`,
then come a transactional id (`nobody` is never initialised) and options: `v3` the version, `epoch+1` and `pid+1` other
numbers than the producer's, `former` the numbers that it had before the last step that changed them.
The transcript was recorded from Apache Kafka 4.2.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import NewRecord, encode_batch

TIMEOUT_S = 30.0
GROUP_KEY, TRANSACTION_KEY = 0, 1
_MOVING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
_UNSETTLED = ("PrepareCommit", "PrepareAbort")


@dataclass
class Producer:
    """A transactional id as its producer knows it."""

    transactional_id: str
    producer_id: int = 1
    epoch: int = 0
    former: tuple[int, int] = (1, 0)

    def become(self, producer_id: int, epoch: int) -> None:
        """Take the numbers that the coordinator gave."""
        if producer_id >= 0 and (producer_id, epoch) != (self.producer_id, self.epoch):
            self.former = self.producer_id, self.epoch
            self.producer_id, self.epoch = producer_id, epoch


@dataclass
class Options:
    """What the words after the transactional id say."""

    version: int = 3
    producer_id: int = 0
    epoch: int = 0
    words: dict[str, str] = field(default_factory=dict)
    """Words of the form `name=value`, and others with the value ''."""

    def number(self, name: str, default: int) -> int:
        """The number after `name=`."""
        return int(self.words.get(name, default))


def _names(codes: Sequence[int]) -> str:
    return " ".join(ErrorCode(code).name for code in codes)


class Conversation:
    """Names in the transcript get a prefix, so that it can be held twice with one cluster."""

    def __init__(self, client: ClusterClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._producers: dict[str, Producer] = {}
        self._topic_id = UUID(int=0)
        self._leader = -1

    async def play(self, transcript: str) -> str:
        """Carry out the steps of a transcript; the transcript as it goes now."""
        await self._create_topic()
        told = []
        for line in transcript.splitlines():
            step = line.partition("->")[0].rstrip()
            told.append(
                line if not step or step.startswith("#") else f"{step:<44} -> {await self._step(step)}".rstrip()
            )
        return "\n".join(told) + "\n"

    async def _step(self, step: str) -> str:
        word, name, *rest = step.split()
        producer = self._producers.setdefault(name, Producer(f"{self._prefix}-{name}"))
        options = _options(producer, rest)
        if word == "abort":
            options.words["abort"] = ""
        return await self._steps()[word](producer, options)

    def _steps(self) -> Mapping[str, Callable[[Producer, Options], Awaitable[str]]]:
        """What carries out the steps, by their words."""
        return {
            "init": self._init,
            "add": self._add,
            "verify": self._verify,
            "add-offsets": self._add_offsets,
            "produce": self._produce,
            "commit-offsets": self._commit_offsets,
            "fetch-offset": self._fetch_offset,
            "commit": self._end,
            "abort": self._end,
            "describe": self._describe,
        }

    # ---------------------------------------------------------------- the cluster

    @property
    def _topic(self) -> str:
        return f"{self._prefix}-topic"

    async def _create_topic(self) -> None:
        row = {"name": self._topic, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        fields = {"topics": [row], "timeout": 10_000, "validate_only": False}
        await self._client.request(ApiKey.CREATE_TOPICS, 5, fields)
        deadline = time.monotonic() + TIMEOUT_S
        while self._leader < 0:
            assert time.monotonic() < deadline
            view = await self._client.metadata([self._topic])
            if view.topics and view.topics[0].partitions:
                self._leader = view.topics[0].partitions[0].leader
            await asyncio.sleep(0.05)

    async def _coordinator(self, key: str, kind: int) -> int:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            fields = {"key_type": kind, "coordinator_keys": [key]}
            row = (await self._client.request(ApiKey.FIND_COORDINATOR, 4, fields)).coordinators[0]
            if not row.error_code:
                return int(row.node_id)
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

    async def _ask(
        self, node: Callable[[], Awaitable[int]], api: ApiKey, version: int, fields: Any, *retried: ErrorCode
    ) -> tuple[Struct, list[int]]:
        """The answer and its error codes, once no coordinator is on the move and none of them is to be retried."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = await self._client.request_node(await node(), api, version, fields)
            codes = _codes_in(answer.to_dict())
            if not any(code in (*_MOVING, *retried) for code in codes) or time.monotonic() > deadline:
                return answer, codes
            await asyncio.sleep(0.05)

    async def _ask_transaction_coordinator(
        self, producer: Producer, api: ApiKey, version: int, fields: Any, *retried: ErrorCode
    ) -> tuple[Struct, list[int]]:
        async def node() -> int:
            return await self._coordinator(producer.transactional_id, TRANSACTION_KEY)

        return await self._ask(node, api, version, fields, *retried)

    # ---------------------------------------------------------------- steps

    async def _init(self, producer: Producer, options: Options) -> str:
        resumes = "resume" in options.words
        fields = {
            "transactional_id": producer.transactional_id,
            "transaction_timeout": options.number("timeout", 60_000),
            "producer_id": options.number("pid", options.producer_id if resumes else -1),
            "producer_epoch": options.number("epoch", options.epoch if resumes else -1),
        }
        retried = () if "once" in options.words else (ErrorCode.CONCURRENT_TRANSACTIONS,)
        version = options.version
        answer, codes = await self._ask_transaction_coordinator(
            producer, ApiKey.INIT_PRODUCER_ID, version, fields, *retried
        )
        producer.become(answer.producer_id, answer.producer_epoch)
        return f"{_names(codes)} epoch {answer.producer_epoch}"

    def _partitions(self, options: Options) -> list[dict[str, Any]]:
        name = "nowhere" if "nowhere" in options.words else self._topic
        return [{"name": name, "partitions": [int(one) for one in options.words.get("partitions", "0").split(",")]}]

    async def _add(self, producer: Producer, options: Options) -> str:
        fields = {
            "v3_and_below_transactional_id": producer.transactional_id,
            "v3_and_below_producer_id": options.producer_id,
            "v3_and_below_producer_epoch": options.epoch,
            "v3_and_below_topics": self._partitions(options),
        }
        retried = ErrorCode.CONCURRENT_TRANSACTIONS
        api, version = ApiKey.ADD_PARTITIONS_TO_TXN, options.version
        _, codes = await self._ask_transaction_coordinator(producer, api, version, fields, retried)
        return _names(sorted(codes))  # the order of partitions is not fixed

    async def _verify(self, producer: Producer, options: Options) -> str:
        row = {
            "transactional_id": producer.transactional_id,
            "producer_id": options.producer_id,
            "producer_epoch": options.epoch,
            "verify_only": True,
            "topics": self._partitions(options),
        }
        api = ApiKey.ADD_PARTITIONS_TO_TXN
        _, codes = await self._ask_transaction_coordinator(producer, api, 5, {"transactions": [row]})
        return _names(codes[1:])

    async def _add_offsets(self, producer: Producer, options: Options) -> str:
        fields = {
            "transactional_id": producer.transactional_id,
            "producer_id": options.producer_id,
            "producer_epoch": options.epoch,
            "group_id": f"{self._prefix}-group",
        }
        api, version = ApiKey.ADD_OFFSETS_TO_TXN, options.version
        retried = ErrorCode.CONCURRENT_TRANSACTIONS
        _, codes = await self._ask_transaction_coordinator(producer, api, version, fields, retried)
        return _names(codes)

    async def _produce(self, producer: Producer, options: Options) -> str:
        batch = encode_batch(
            [NewRecord(None, b"v", (), 1_700_000_000_000)],
            producer_id=options.producer_id,
            producer_epoch=options.epoch,
            base_sequence=options.number("sequence", 0),
            is_transactional="outside" not in options.words,
        )
        names_id = not {"outside", "anonymous"} & set(options.words)
        partitions = [{"index": 0, "records": bytes(batch)}]
        fields = {
            "transactional_id": producer.transactional_id if names_id else None,
            "acks": -1,
            "timeout": 10_000,
            "topic_data": [{"name": self._topic, "partition_data": partitions}],
        }

        async def node() -> int:
            return self._leader

        retried = ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS
        _, codes = await self._ask(node, ApiKey.PRODUCE, options.version, fields, *retried)
        return _names(codes)

    async def _group_coordinator(self) -> int:
        return await self._coordinator(f"{self._prefix}-group", GROUP_KEY)

    async def _commit_offsets(self, producer: Producer, options: Options) -> str:
        row = {"partition_index": 0, "committed_offset": options.number("offset", 5), "committed_metadata": ""}
        fields = {
            "transactional_id": producer.transactional_id,
            "group_id": f"{self._prefix}-group",
            "producer_id": options.producer_id,
            "producer_epoch": options.epoch,
            "generation_id": options.number("generation", -1),
            "member_id": options.words.get("member", ""),
            "topics": [{"name": self._partitions(options)[0]["name"], "partitions": [row]}],
        }
        retried = ErrorCode.CONCURRENT_TRANSACTIONS
        api, version = ApiKey.TXN_OFFSET_COMMIT, options.version
        _, codes = await self._ask(self._group_coordinator, api, version, fields, retried)
        return _names(codes)

    async def _fetch_offset(self, producer: Producer, options: Options) -> str:
        topics = [{"name": self._topic, "partition_indexes": [0]}]
        group = {"group_id": f"{self._prefix}-group", "topics": topics}
        fields = {"groups": [group], "require_stable": "stable" in options.words or "settled" in options.words}
        retried = (ErrorCode.UNSTABLE_OFFSET_COMMIT,) if "settled" in options.words else ()
        answer, codes = await self._ask(self._group_coordinator, ApiKey.OFFSET_FETCH, 8, fields, *retried)
        return f"{_names(codes[:1])} {answer.groups[0].topics[0].partitions[0].committed_offset}"

    async def _end(self, producer: Producer, options: Options) -> str:
        fields = {
            "transactional_id": producer.transactional_id,
            "producer_id": options.producer_id,
            "producer_epoch": options.epoch,
            "committed": "abort" not in options.words,
        }
        api, version = ApiKey.END_TXN, options.version
        retried = ErrorCode.CONCURRENT_TRANSACTIONS
        answer, codes = await self._ask_transaction_coordinator(producer, api, version, fields, retried)
        if version < 5:
            return _names(codes)
        producer.become(answer.producer_id, answer.producer_epoch)
        return f"{_names(codes)} epoch {answer.producer_epoch}"

    async def _describe(self, producer: Producer, options: Options) -> str:
        deadline = time.monotonic() + TIMEOUT_S
        fields = {"transactional_ids": [producer.transactional_id]}
        while True:
            answer, codes = await self._ask_transaction_coordinator(producer, ApiKey.DESCRIBE_TRANSACTIONS, 0, fields)
            state = answer.transaction_states[0]
            if state.transaction_state not in _UNSETTLED or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.05)
        if codes != [0]:
            return _names(codes)
        partitions = " ".join(str(sorted(topic.partitions)) for topic in state.topics)
        return f"{state.transaction_state} epoch {state.producer_epoch} {partitions}"


def _options(producer: Producer, words: Sequence[str]) -> Options:
    options = Options(producer_id=producer.producer_id, epoch=producer.epoch)
    if "former" in words:
        options.producer_id, options.epoch = producer.former
    for word in words:
        if word[0] == "v" and word[1:].isdecimal():
            options.version = int(word[1:])
        elif word.startswith("epoch+"):
            options.epoch += int(word[6:])
        elif word.startswith("pid+"):
            options.producer_id += int(word[4:])
        else:
            name, _, value = word.partition("=")
            options.words[name] = value
    return options


def _codes_in(value: Any) -> list[int]:
    """All error codes in an answer, in its order."""
    if isinstance(value, dict):
        found: list[int] = []
        for name, one in value.items():
            found += [one] if name in ("error_code", "partition_error_code") else _codes_in(one)
        return found
    if isinstance(value, list | tuple):
        return [code for one in value for code in _codes_in(one)]
    return []
