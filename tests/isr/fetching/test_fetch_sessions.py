"""Incremental fetch sessions: transcripts of conversations, and the rules of eviction."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

import pytest
from support.transcripts import check_transcript

from raftwerk.isr.fetching.dirty_partitions import DirtyPartitionTracker
from raftwerk.isr.fetching.leader_fetch_sessions import CachedPartition, FetchContext, FetchSessionCache
from raftwerk.isr.ports import FetchKey
from raftwerk.runtime.incremental_work import ITEMS_PER_STEP, Work
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.fetch import FetchPartition, FetchPartitionResponse, FetchRequest, FetchTopic, ForgottenTopic
from raftwerk.wire.types import EpochEndOffset

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("fetch_session_*.txt"))


class FixedIds(random.Random):
    """Session ids 1, 2, 3 ..."""

    def __init__(self) -> None:
        super().__init__(0)
        self.last = 0

    def randint(self, low: int, high: int) -> int:
        self.last += 1
        return self.last


def request(words: Iterable[str]) -> tuple[FetchRequest, bool]:
    """`fetch [follower] id=1 epoch=0 a-0@5 b-1@0 forget=a-0 ids` as a request, and whether it uses topic ids."""
    result, uses_ids = FetchRequest(), False
    for word in words:
        if word == "follower":
            result.replica_id = 1
        elif word == "ids":
            uses_ids = True
        elif word.startswith("id="):
            result.session_id = int(word[3:])
        elif word.startswith("epoch="):
            result.session_epoch = int(word[6:])
        elif word.startswith("forget="):
            topic, partition = word[7:].rsplit("-", 1)
            result.forgotten.append(ForgottenTopic(topic, None, [int(partition)]))
        else:
            name, offset = word.split("@")
            topic, partition = name.rsplit("-", 1)
            result.topics.append(FetchTopic(topic, None, [FetchPartition(int(partition), fetch_offset=int(offset))]))
    return result, uses_ids


def play(lines: Iterable[str]) -> list[str]:
    """Carries out the requests of a transcript; returns it with the answers as they are."""
    cache, now_ms, state, played = FetchSessionCache(2, FixedIds(), DirtyPartitionTracker()), 0, {}, []
    for line in lines:
        if line.startswith(("<", "  ")):
            continue
        played.append(line)
        words = line.split()
        if not words or words[0] == "#":
            continue
        if words[0] == "wait":
            now_ms += int(words[1])
        elif words[0] == "log":
            name, high_watermark, records, error = words[1], int(words[2]), words[3] == "records", int(words[4])
            state[name] = (high_watermark, records, error)
        elif words[0] == "fetch":
            played += conversation(cache, words[1:], state, now_ms)
    return played


def conversation(
    cache: FetchSessionCache, words: Iterable[str], state: dict[str, tuple[int, bool, int]], now_ms: int
) -> list[str]:
    wanted, uses_ids = request(words)
    context = cache.context(wanted, uses_ids, now_ms)
    if context.error_code:
        return [f"< error {context.error_code}"]
    answers, rows = [], context.take()
    for key, row in rows:
        high_watermark, records, error = state.get(f"{key.topic}-{key.partition}", (0, False, 0))
        found = b"x" if records and row.fetch_offset < high_watermark else b""
        answer = FetchPartitionResponse(row.partition, error, high_watermark, high_watermark, 0, records=found)
        answers.append((key, answer))
    code, session_id = context.close()
    sent = context.select(answers)
    lines = [f"< read {' '.join(f'{key.topic}-{key.partition}@{row.fetch_offset}' for key, row in rows)}".rstrip()]
    shown = [
        f"{key.topic}-{key.partition}:{answer.high_watermark}"
        + ("+records" if answer.records else "")
        + (f"!{answer.error_code}" if answer.error_code else "")
        for key, answer in sent
    ]
    lines.append(f"< error {code} session {session_id}: {' '.join(shown)}".rstrip())
    return lines


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_fetch_session_transcript(path: Path) -> None:
    check_transcript(path, lambda text: "\n".join(play(text.splitlines())) + "\n")


def open_session(cache: FetchSessionCache, now_ms: int, partitions: int = 1, follower: bool = False) -> int:
    wanted = FetchRequest(replica_id=1 if follower else -1, session_epoch=0)
    wanted.topics.append(FetchTopic("t", None, [FetchPartition(index) for index in range(partitions)]))
    context = cache.context(wanted, False, now_ms)
    answers = [(key, FetchPartitionResponse(row.partition)) for key, row in context.take()]
    session_id = context.close()[1]
    context.select(answers)
    return session_id


def test_a_full_cache_gives_no_session_of_equal_worth() -> None:
    cache = FetchSessionCache(1, FixedIds(), DirtyPartitionTracker())
    assert open_session(cache, 0) == 1
    assert open_session(cache, 1) == 0
    assert len(cache) == 1


def test_a_session_unused_for_two_minutes_is_evicted() -> None:
    cache = FetchSessionCache(1, FixedIds(), DirtyPartitionTracker())
    open_session(cache, 0, partitions=9)
    assert open_session(cache, 120_000) == 0
    assert open_session(cache, 120_001) == 2
    assert cache.evictions_total == 1


def test_followers_take_slots_from_consumers_at_once() -> None:
    cache = FetchSessionCache(1, FixedIds(), DirtyPartitionTracker())
    open_session(cache, 0, partitions=9)
    assert open_session(cache, 1, follower=True) == 2
    assert open_session(cache, 500_000 - 400_000, partitions=99) == 0


def test_no_slots_no_sessions() -> None:
    assert open_session(FetchSessionCache(0, FixedIds(), DirtyPartitionTracker()), 0) == 0


@pytest.mark.parametrize(("epoch", "is_told"), [(4, False), (5, True)])
def test_a_fetch_in_another_leader_epoch_is_told_the_high_watermark_again(epoch: int, is_told: bool) -> None:
    """The follower dropped the answer that it got after it had heard of the epoch."""
    cache = FetchSessionCache(1, FixedIds(), DirtyPartitionTracker())
    sent = []
    for session_epoch, leader_epoch in ((0, 4), (1, epoch)):
        row = FetchPartition(0, current_leader_epoch=leader_epoch, fetch_offset=1)
        wanted = FetchRequest(replica_id=1, session_id=session_epoch, session_epoch=session_epoch)
        wanted.topics.append(FetchTopic("t", None, [row]))
        context = cache.context(wanted, False, 0)
        answers = [(key, FetchPartitionResponse(0, high_watermark=1, log_start_offset=0)) for key, _ in context.take()]
        context.close()
        sent.append([answer.high_watermark for _, answer in context.select(answers)])
    assert sent == [[1], [1] if is_told else []]


def test_a_truncated_follower_gets_the_high_watermark_again() -> None:
    """It took nothing else from that answer, and no record may come for long."""
    partition = CachedPartition(FetchPartition(0, fetch_offset=99))
    diverging = FetchPartitionResponse(0, high_watermark=80, log_start_offset=0)
    diverging.diverging_epoch = EpochEndOffset(1, 80)
    at_the_end = FetchPartitionResponse(0, high_watermark=80, log_start_offset=0)
    assert partition.has_news(diverging)
    assert partition.has_news(at_the_end)
    assert not partition.has_news(at_the_end)


class KnownBounds(FixedIds):
    """Session ids 1, 2, 3 ..., with the bounds that were asked for."""

    bounds: tuple[int, int] | None = None

    def randint(self, low: int, high: int) -> int:
        self.bounds = (low, high)
        return super().randint(low, high)


def test_session_ids_are_positive_and_fit_into_four_bytes() -> None:
    ids = KnownBounds()
    open_session(FetchSessionCache(2, ids, DirtyPartitionTracker()), 0)
    assert ids.bounds == (1, 2_147_483_647)


def test_a_session_makes_no_room_for_one_of_the_same_worth() -> None:
    """Else two clients would take the slot from each other with every fetch."""
    cache = FetchSessionCache(1, FixedIds(), DirtyPartitionTracker(), min_eviction_ms=1000)
    first = open_session(cache, 0, partitions=2, follower=True)
    cache.context(FetchRequest(replica_id=1, session_id=first, session_epoch=1), False, 1500)
    assert open_session(cache, 1500, partitions=2, follower=True) == 0
    assert open_session(cache, 1500, partitions=3, follower=True) != 0


def many(epoch: int, session_id: int = 0) -> FetchRequest:
    """A request that lists more partitions than two steps take."""
    partitions = [FetchPartition(index) for index in range(2 * ITEMS_PER_STEP + 1)]
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=[FetchTopic("many", None, partitions)])


def steps_of(work: Work[FetchContext]) -> tuple[int, FetchContext]:
    """How many steps the work takes, and what it returns."""
    for steps in range(100):
        try:
            next(work)
        except StopIteration as end:
            return steps, end.value
    raise AssertionError("it does not end")


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_request_of_many_partitions_is_looked_at_in_steps(epoch: int) -> None:
    cache = FetchSessionCache(2, FixedIds(), DirtyPartitionTracker())
    steps, context = steps_of(cache.context_in_steps(many(epoch), False, 0))
    assert steps == 2
    assert [key.partition for key, _ in context.take()] == list(range(2 * ITEMS_PER_STEP + 1))


def test_a_session_takes_many_partitions_in_steps() -> None:
    cache = FetchSessionCache(2, FixedIds(), DirtyPartitionTracker())
    session_id = open_session(cache, 0)
    steps, context = steps_of(cache.context_in_steps(many(1, session_id), False, 0))
    assert steps == 2
    assert len(context.take()) == 1 + 2 * ITEMS_PER_STEP + 1


def test_a_session_that_is_closed_while_it_takes_partitions_is_not_found() -> None:
    cache = FetchSessionCache(2, FixedIds(), DirtyPartitionTracker())
    session_id = open_session(cache, 0)
    work = cache.context_in_steps(many(1, session_id), False, 0)
    next(work)
    cache.context(FetchRequest(session_id=session_id, session_epoch=-1), False, 0)
    _, context = steps_of(work)
    assert context.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_node_0_is_a_follower() -> None:
    tracker = DirtyPartitionTracker()
    cache = FetchSessionCache(1, FixedIds(), tracker)
    session = cache.open(0, 1, True, 0)
    assert session is not None
    assert session.is_follower and session.dirty is not None


@pytest.mark.parametrize(
    ("words", "slots", "may_wait"),
    [
        ("fetch a-0@0", 1, True),
        ("fetch ids a-0@0", 1, True),
        ("fetch follower a-0@0", 1, True),
        ("fetch follower ids a-0@0", 1, False),
        ("fetch follower ids a-0@0", 0, True),
    ],
)
def test_only_a_follower_with_topic_ids_does_not_wait_in_the_fetch_that_opens_its_session(
    words: str, slots: int, may_wait: bool
) -> None:
    message, uses_ids = request(words.split()[1:])
    message.session_epoch = 0
    cache = FetchSessionCache(slots, FixedIds(), DirtyPartitionTracker())
    context = cache.context(message, uses_ids, 0)
    assert context.may_wait is may_wait


@pytest.mark.parametrize(
    ("by_follower", "now_ms", "size", "has_room"),
    [(False, 0, 1, True), (True, 0, 9, False), (True, 120_000, 99, False), (True, 120_001, 1, True)],
)
def test_whether_there_is_room_is_known_before_a_session_is_opened(
    by_follower: bool, now_ms: int, size: int, has_room: bool
) -> None:
    """A follower waits in the fetch for which it gets none: its next one says all again, and would come at once."""
    cache = FetchSessionCache(1, FixedIds(), DirtyPartitionTracker())
    open_session(cache, 0, 9, by_follower)
    assert cache.has_room(1, size, now_ms) is has_room
    assert len(cache) == 1 and cache.evictions_total == 0
    assert bool(open_session(cache, now_ms, size, follower=True)) is has_room


def test_an_empty_log_that_nobody_knows_is_no_news() -> None:
    partition = CachedPartition(FetchPartition(0))
    assert not partition.is_news(FetchPartitionResponse(0, 0, -1, log_start_offset=-1))
    assert partition.is_news(FetchPartitionResponse(0, 0, 0, log_start_offset=-1))


# ------------------------------------------------------------------ which session makes room


def use(cache: FetchSessionCache, session_id: int, epoch: int, now_ms: int) -> FetchContext:
    """The session goes on."""
    return cache.context(FetchRequest(session_id=session_id, session_epoch=epoch), False, now_ms)


def test_an_old_session_makes_room_for_a_larger_one_consumers_and_small_ones_first() -> None:
    """All are in use. A client that is left without a session names all its partitions in each fetch."""
    cache = FetchSessionCache(3, FixedIds(), DirtyPartitionTracker(), min_eviction_ms=1000)
    follower = open_session(cache, 0, partitions=1, follower=True)
    larger, smaller = open_session(cache, 0, partitions=5), open_session(cache, 0, partitions=2)
    for session_id in (follower, larger, smaller):
        use(cache, session_id, 1, 1001)
    assert cache.partitions_total == 8
    assert open_session(cache, 1001, partitions=2) == 0, "it is not larger than the smallest"
    assert open_session(cache, 1001, partitions=3) != 0
    assert use(cache, smaller, 2, 1002).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert open_session(cache, 1002, partitions=1, follower=True) != 0, "a follower takes the slot of a consumer"
    assert cache.evictions_total == 2
    assert use(cache, follower, 2, 1002).error_code == 0
    assert use(cache, larger, 2, 1002).error_code == 0
    assert len(cache) == 3


def test_a_consumer_never_takes_the_slot_of_a_follower_that_fetches() -> None:
    cache = FetchSessionCache(1, FixedIds(), DirtyPartitionTracker(), min_eviction_ms=1000)
    follower = open_session(cache, 0, follower=True)
    use(cache, follower, 1, 5000)
    assert open_session(cache, 5000, partitions=99) == 0
    assert open_session(cache, 6001, partitions=1) != 0, "it has not fetched for long"


def test_of_the_sessions_that_are_not_used_the_one_that_was_used_longest_ago_goes() -> None:
    cache = FetchSessionCache(2, FixedIds(), DirtyPartitionTracker(), min_eviction_ms=1000)
    first, second = open_session(cache, 0), open_session(cache, 0)
    use(cache, first, 1, 500)
    assert open_session(cache, 5000) != 0
    assert use(cache, second, 1, 5000).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert use(cache, first, 2, 5000).error_code == 0


def test_a_young_session_makes_no_room_for_a_larger_one() -> None:
    """Else clients that start together would take the slots from each other."""
    cache = FetchSessionCache(1, FixedIds(), DirtyPartitionTracker(), min_eviction_ms=1000)
    session_id = open_session(cache, 0)
    use(cache, session_id, 1, 1000)
    assert open_session(cache, 1000, partitions=9) == 0
    assert open_session(cache, 1001, partitions=9) != 0


def test_a_session_that_ends_is_told_of_no_changes_any_more() -> None:
    """Else the broker would mark partitions of sessions that nobody reads, for ever."""
    tracker = DirtyPartitionTracker()
    cache = FetchSessionCache(1, FixedIds(), tracker, min_eviction_ms=1000)
    session = cache.open(2, 1, True, 0)
    assert session is not None and session.dirty is not None
    key = FetchKey(UUID(int=7), 0)
    session.dirty.add(key)
    assert cache.open(3, 1, True, 5000) is not None
    assert session.dirty.names == {} and session.dirty.take() == []


# ------------------------------------------------------------------ epochs


def test_the_epoch_of_a_session_begins_anew_at_one_after_the_largest() -> None:
    """0 would open another session."""
    cache = FetchSessionCache(1, FixedIds(), DirtyPartitionTracker())
    session = cache.open(-1, 1, False, 0)
    assert session is not None
    session.partitions[FetchKey("t", 0)] = CachedPartition(FetchPartition(0))
    session.epoch = 2**31 - 2
    for epoch in (2**31 - 2, 2**31 - 1, 1, 2):
        assert use(cache, session.session_id, epoch, 0).error_code == 0


@pytest.mark.parametrize("in_steps", [True, False])
@pytest.mark.parametrize(
    ("words", "uses_ids", "error"),
    [
        ("id=9 epoch=1", False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ("id=1 epoch=2", False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ("id=1 epoch=1", True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        ("id=1 epoch=1", False, ErrorCode.NONE),
    ],
)
def test_a_session_is_continued_by_its_id_its_epoch_and_its_way_to_name_topics(
    words: str, uses_ids: bool, error: ErrorCode, in_steps: bool
) -> None:
    cache = FetchSessionCache(1, FixedIds(), DirtyPartitionTracker())
    open_session(cache, 0, partitions=2)
    message, _ = request(words.split())
    if in_steps:
        _, context = steps_of(cache.context_in_steps(message, uses_ids, 0))
    else:
        context = cache.context(message, uses_ids, 0)
    assert context.error_code == error
    assert len(context.take()) == (2 if error is ErrorCode.NONE else 0)


@pytest.mark.parametrize("in_steps", [True, False])
def test_a_session_without_partitions_is_closed(in_steps: bool) -> None:
    cache = FetchSessionCache(1, FixedIds(), DirtyPartitionTracker())
    session_id = open_session(cache, 0, partitions=2 * ITEMS_PER_STEP + 1)
    message = FetchRequest(session_id=session_id, session_epoch=1)
    message.forgotten.append(ForgottenTopic("t", None, list(range(2 * ITEMS_PER_STEP + 1))))
    if in_steps:
        steps, context = steps_of(cache.context_in_steps(message, False, 0))
        assert steps == 2
    else:
        context = cache.context(message, False, 0)
    assert (context.error_code, context.take(), context.close()) == (0, [], (0, 0))
    assert len(cache) == 0


@pytest.mark.parametrize("session_epoch", [-1, 0, 1])
def test_a_fetch_says_in_which_leader_epoch_it_asks_for_a_partition(session_epoch: int) -> None:
    """Named in this request or, in a session, in an earlier one. A fetch in another epoch confirms no leadership."""
    cache = FetchSessionCache(1, FixedIds(), DirtyPartitionTracker())
    session = cache.open(2, 2, False, 0)
    assert session is not None
    rows = [FetchPartition(index, current_leader_epoch=5 + index) for index in range(2)]
    message = FetchRequest(replica_id=2, session_id=0, session_epoch=session_epoch)
    if session_epoch == 1:
        session.partitions.update((FetchKey("t", row.partition), CachedPartition(row)) for row in rows)
        message.session_id = session.session_id
    else:
        message.topics.append(FetchTopic("t", None, rows))
    context = cache.context(message, False, 0)
    assert [context.leader_epoch_of(FetchKey("t", index)) for index in range(3)] == [5, 6, None]
    assert context.leader_epoch_of(FetchKey("u", 0)) is None
