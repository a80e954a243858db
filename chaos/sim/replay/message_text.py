"""What the requests and responses of elections and ISR changes say, in a few words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from ....wire.api_keys import ApiKey
from ....wire.codec import decode_request, decode_response
from ....wire.errors import ErrorCode
from ....wire.frames import parse_request_header, parse_response_header

TopicName = Callable[[UUID], str]
TOLD = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.ALTER_PARTITION,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.ELECT_LEADERS,
)
"""The requests that are steps of a replay. All others are messages only: there are too many."""


def request_text(api_key: int, version: int, frame: bytes, topic_name: TopicName) -> str:
    """What a request of `TOLD` asks. `frame` is without its size field."""
    _, body_at = parse_request_header(frame)
    request: Any = decode_request(api_key, version, frame, body_at)
    match api_key:
        case ApiKey.VOTE:
            asked = request.topics[0].partitions[0]
            kind = "pre-vote" if asked.get("pre_vote", False) else "vote"
            own = f"own log ends at {asked.last_offset} of epoch {asked.last_offset_epoch}"
            return f"asks for a {kind} in epoch {asked.replica_epoch}, {own}"
        case ApiKey.BEGIN_QUORUM_EPOCH:
            return f"leads epoch {request.topics[0].partitions[0].leader_epoch}"
        case ApiKey.END_QUORUM_EPOCH:
            return f"resigns from epoch {request.topics[0].partitions[0].leader_epoch}"
        case ApiKey.ALTER_PARTITION:
            return f"proposes {_proposals(request, topic_name)}"
        case ApiKey.BROKER_REGISTRATION:
            return f"registers broker {request.broker_id}"
        case _:
            return "asks for elections"


def _proposals(request: Any, topic_name: TopicName) -> str:
    return ", ".join(
        f"ISR {_proposed_isr(partition)} for {topic_name(topic.topic_id)}-{partition.partition_index}"
        for topic in request.topics
        for partition in topic.partitions
    )


def _proposed_isr(partition: Any) -> list[int]:
    states = partition.get("new_isr_with_epochs")
    return list(partition.new_isr) if states is None else [state.broker_id for state in states]


def response_text(api_key: int, version: int, frame: bytes, topic_name: TopicName) -> str:
    """What a response of `TOLD` says: an error, or the answer. `frame` is without its size field."""
    _, body_at = parse_response_header(api_key, version, frame)
    response: Any = decode_response(api_key, version, frame, body_at)
    error = response.get("error_code", 0)
    if error:
        return ErrorCode(error).name
    match api_key:
        case ApiKey.VOTE:
            answer = response.topics[0].partitions[0]
            if answer.error_code:
                return ErrorCode(answer.error_code).name
            return f"{'grants' if answer.vote_granted else 'refuses'} it, epoch {answer.leader_epoch}"
        case ApiKey.BEGIN_QUORUM_EPOCH | ApiKey.END_QUORUM_EPOCH:
            code = response.topics[0].partitions[0].error_code
            return ErrorCode(code).name if code else "accepts it"
        case ApiKey.ALTER_PARTITION:
            return ", ".join(_altered(topic, topic_name) for topic in response.topics)
        case ApiKey.BROKER_REGISTRATION:
            return f"broker epoch {response.broker_epoch}"
        case _:
            return "accepts it"


def _altered(topic: Any, topic_name: TopicName) -> str:
    return ", ".join(
        f"{topic_name(topic.topic_id)}-{partition.partition_index}: "
        + (ErrorCode(partition.error_code).name if partition.error_code else f"ISR {list(partition.isr)}")
        for partition in topic.partitions
    )
