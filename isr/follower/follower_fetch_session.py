"""The follower's side of an incremental fetch session (KIP-227).

The leader remembers what was asked for. A request names only the partitions whose parameters changed or that are not
fetched any more, and at most 500 of them. A partition whose parameters changed, but that cannot be named yet, is
forgotten until it is. Else the leader would read it from the former offset again, and take it that this broker still
follows in the former epoch (`leader/read_confirmations.py`).

A session begins with a full request (epoch 0); every answered request increments the epoch. After an error of the
session or a lost connection, neither side knows what the other one knows: the next request is a full one again, which
also closes the old session.
"""

from __future__ import annotations

from itertools import islice
from typing import TypeAlias
from uuid import UUID

from ...wire.fetch import FetchPartition, FetchTopic, ForgottenTopic

NO_SESSION = 0
INITIAL_EPOCH = 0
_MAX_EPOCH = 0x7FFFFFFF
NAMED_AT_ONCE = 500
"""How many partitions one request names at most: both sides work on each of them. Without a session it names all."""

PartitionKey: TypeAlias = tuple[UUID, int]


class FetchSession:
    """What the leader should know (`wanted`), and what the next request has to name of it."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.wanted: dict[PartitionKey, FetchPartition] = {}
        self._changed: dict[PartitionKey, None] = {}
        """What is to be named. The leader knows nothing of what a request has left over."""
        self._forgotten: dict[PartitionKey, None] = {}
        self._is_refused = False

    def want(self, key: PartitionKey, partition: FetchPartition) -> None:
        """Fetch the partition with these parameters from now on."""
        former = self.wanted.get(key)
        if former != partition:
            if former is not None and key not in self._changed:
                self._forgotten[key] = None
            self.wanted[key] = partition
            self._changed[key] = None

    def forget(self, key: PartitionKey) -> None:
        """Stop fetching the partition."""
        if self.wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten[key] = None

    @property
    def has_more_to_name(self) -> bool:
        """Whether there are partitions that the leader does not know yet: then no request should wait."""
        return bool(self._changed)

    def next_request(self) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """Topics to name and to forget in the request with this `session_id` and `epoch`."""
        full = self.epoch == INITIAL_EPOCH
        if full:
            self._changed = dict.fromkeys(self.wanted)
        topics: dict[UUID, FetchTopic] = {}
        for key in list(islice(self._changed, None if self._is_refused else NAMED_AT_ONCE)):
            del self._changed[key]
            self._forgotten.pop(key, None)
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopic(name=None, topic_id=key[0], partitions=[])
            topic.partitions.append(self.wanted[key])
        forgotten: dict[UUID, ForgottenTopic] = {}
        for topic_id, partition in () if full else self._forgotten:
            entry = forgotten.get(topic_id)
            if entry is None:
                entry = forgotten[topic_id] = ForgottenTopic(name=None, topic_id=topic_id, partitions=[])
            entry.partitions.append(partition)
        self._forgotten.clear()
        return list(topics.values()), list(forgotten.values())

    def on_answer(self, session_id: int) -> None:
        """The request was answered without an error of the session; id 0 means that the leader has no session."""
        self._is_refused = session_id == NO_SESSION
        if self._is_refused:
            self.reset()
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch >= _MAX_EPOCH else self.epoch + 1

    def on_failure(self) -> None:
        """The leader refused the session, or its answer was lost: start over, and close what is left of the session."""
        self.epoch = INITIAL_EPOCH

    def reset(self) -> None:
        """Start over with a leader that has no session."""
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
