"""When a follower asks its leader again, and when it connects to it again."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from support.isr.replicas import Reg
from support.isr.scripted_leader import EPOCH, NEVER, Following, LeaderConnection, ScriptedLeader, answer, records, run

from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.fetch import FetchPartitionResponse

LATEST, EARLIEST = -1, -2
OUT_OF_RANGE = answer(FetchPartitionResponse(0, int(ErrorCode.OFFSET_OUT_OF_RANGE)))


def refused(code: ErrorCode) -> FetchPartitionResponse:
    return FetchPartitionResponse(0, int(code))


def test_a_leader_that_refuses_whole_requests_is_asked_less_and_less_often() -> None:
    """It may be overloaded, and each fetcher of each broker asks it."""

    async def body() -> None:
        leader = ScriptedLeader(otherwise=answer(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR)))
        following = Following(leader)
        await asyncio.sleep(3.0)
        await following.fetcher.stop()
        pauses_s = leader.pauses_s[1:]  # the first one ends at once, as the partition has just been added
        for pause_s, expected_s in zip(pauses_s, (0.1, 0.2, 0.4, 0.8), strict=False):
            assert 0.8 * expected_s <= pause_s <= 1.2 * expected_s
        assert len(pauses_s) >= 4, "and the connection stays"
        assert len(leader.connections) == 1

    run(body())


def test_after_an_answer_the_pauses_begin_anew() -> None:
    async def body() -> None:
        error = answer(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR))
        sound = answer(FetchPartitionResponse(0, 0, 0))
        leader = ScriptedLeader(error, error, error, sound, error, NEVER)
        following = Following(leader)
        await asyncio.sleep(2.0)
        await following.fetcher.stop()
        assert len(leader.asked) == 6
        assert leader.pauses_s[2] >= 0.8 * 0.2
        assert leader.pauses_s[4] <= 1.2 * 0.05

    run(body())


def test_a_partition_that_is_refused_is_asked_for_again_when_its_pause_is_over() -> None:
    async def body() -> None:
        await asyncio.sleep(100.0)
        leader = ScriptedLeader(answer(refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)))
        following = Following(leader)
        await asyncio.sleep(1.0)
        await following.fetcher.stop()
        (pause_s,) = leader.pauses_s
        assert 0.049 <= pause_s <= 0.052

    run(body())


def test_records_are_asked_for_again_at_once() -> None:
    async def body() -> None:
        leader = ScriptedLeader(*(answer(FetchPartitionResponse(0, 0, 1, records=records(n))) for n in range(3)))
        following = Following(leader)
        await asyncio.sleep(0.001)
        assert [topic.partitions[0].fetch_offset for one in leader.asked for topic in one.topics] == [0, 1, 2, 3]
        await following.fetcher.stop()

    run(body())


def test_a_fetcher_that_is_stopped_closes_its_connection_and_asks_for_nothing() -> None:
    async def body() -> None:
        leader = ScriptedLeader()
        following = Following(leader)
        await asyncio.sleep(0.1)
        assert [connection.is_closed for connection in leader.connections] == [False]
        await following.fetcher.stop()
        await asyncio.sleep(60.0)
        assert [connection.is_closed for connection in leader.connections] == [True]
        assert len(leader.asked) == 1

    run(body())


@pytest.mark.parametrize(("restarted", "connections"), [(True, 2), (False, 1)])
def test_a_leader_that_was_restarted_is_connected_to_again_at_once(restarted: bool, connections: int) -> None:
    """The connection to its former incarnation may seem to be open for long."""

    async def body() -> None:
        leader = ScriptedLeader()
        following = Following(leader)
        await asyncio.sleep(0.1)
        following.fetcher.on_broker_changed(restarted=restarted)
        await asyncio.sleep(0.001)
        assert len(leader.connections) == connections
        await following.fetcher.stop()

    run(body())


def test_a_leader_that_does_not_answer_is_connected_to_again_after_its_wait_and_two_seconds() -> None:
    async def body() -> None:
        leader = ScriptedLeader()
        following = Following(leader)
        await asyncio.sleep(2.49)
        assert len(leader.connections) == 1
        await asyncio.sleep(0.02)
        assert [connection.is_closed for connection in leader.connections] == [True, False]
        await asyncio.sleep(4.9)
        assert len(leader.connections) == 2, "it may just be slow: it gets twice the time"
        await asyncio.sleep(0.2)
        assert len(leader.connections) == 3
        await following.fetcher.stop()

    run(body())


# ------------------------------------------------------------------ out of the leader's range


@pytest.mark.parametrize("unknown", [LATEST, EARLIEST])
def test_a_follower_that_does_not_learn_its_leaders_range_keeps_its_log_and_asks_again(unknown: int) -> None:
    async def body() -> None:
        leader = ScriptedLeader(OUT_OF_RANGE)
        leader.offsets = lambda timestamp: (
            (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1) if timestamp == unknown else (0, 9)
        )
        following = Following(leader, own=2)
        await asyncio.sleep(1.0)
        assert following.replica.log_end_offset == 2
        (pause_s,) = leader.pauses_s
        assert 0.049 <= pause_s <= 0.052
        await following.fetcher.stop()

    run(body())


@pytest.mark.parametrize(("start_offset", "end_offset", "own_end"), [(0, 1, 1), (7, 9, 7), (3, 9, 3)])
def test_a_follower_outside_of_its_leaders_range_goes_on_within_it(
    start_offset: int, end_offset: int, own_end: int
) -> None:
    """It is cut to where the leader's log ends, or begins anew where that starts; it has two records."""

    async def body() -> None:
        leader = ScriptedLeader(OUT_OF_RANGE)
        leader.offsets = lambda timestamp: (0, start_offset if timestamp == EARLIEST else end_offset)
        following = Following(leader, own=2)
        await asyncio.sleep(0.001)
        assert following.replica.log_end_offset == own_end
        assert leader.asked[1].topics[0].partitions[0].fetch_offset == own_end
        await following.fetcher.stop()

    run(body())


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_role_that_changes_while_the_leaders_range_is_asked_for_leaves_the_log_as_it_is(is_removed: bool) -> None:
    """The two offsets may be of two epochs, or of another leader: cut by them, the log could lose committed records."""

    async def body() -> None:
        leader = ScriptedLeader(OUT_OF_RANGE)
        following = Following(leader, own=2)
        replica, fetcher = following.replica, following.fetcher

        def offsets(timestamp: int) -> tuple[int, int]:
            if timestamp == EARLIEST:
                key = (replica.topic_id, 0)
                fetcher.remove(key)
                replica.make_follower(Reg((1, 2), (1,), 1, EPOCH + 1, 11))
                if not is_removed:
                    fetcher.add([replica])
            return 0, 0

        leader.offsets = offsets
        await asyncio.sleep(0.2)
        assert replica.log_end_offset == 2
        epochs = [row.current_leader_epoch for one in leader.asked for topic in one.topics for row in topic.partitions]
        assert epochs == ([EPOCH] if is_removed else [EPOCH, EPOCH + 1])
        await fetcher.stop()

    run(body())


def test_a_change_of_the_leaders_registration_ends_the_pauses_of_its_partitions() -> None:
    """The leader may have been fenced, and refused them for that."""

    async def body() -> None:
        no_leader = answer(refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        leader = ScriptedLeader(*[no_leader] * 5)
        following = Following(leader)
        await asyncio.sleep(1.0)
        assert len(leader.asked) == 5, "after 50, 100, 200 and 400 ms; the next one comes after 800 ms"
        following.fetcher.on_broker_changed(restarted=False)
        await asyncio.sleep(0.001)
        assert len(leader.asked) == 6
        await following.fetcher.stop()

    run(body())


def test_a_fetcher_that_has_no_partition_left_gives_its_connection_up_and_makes_one_when_it_has() -> None:
    async def body() -> None:
        leader = ScriptedLeader()
        following = Following(leader)
        await asyncio.sleep(0.1)
        following.fetcher.remove((following.replica.topic_id, 0))
        await asyncio.sleep(0.001)
        assert [connection.is_closed for connection in leader.connections] == [True]
        await asyncio.sleep(60.0)
        assert len(leader.asked) == 1
        following.fetcher.add([following.replica])
        await asyncio.sleep(0.001)
        assert [connection.is_closed for connection in leader.connections] == [True, False]
        assert len(leader.asked) == 2
        assert leader.asked[1].session_epoch == 0, "the leader forgot the session with its connection, or may have"
        await following.fetcher.stop()

    run(body())


def test_a_broker_that_cannot_be_reached_is_tried_again_after_growing_pauses_and_then_at_once() -> None:
    """At once when a partition is added or the broker's registration changes: it may listen elsewhere now."""

    async def body() -> None:
        loop, leader, tried_at = asyncio.get_running_loop(), ScriptedLeader(), list[float]()
        is_down = True

        async def connect(broker_id: int) -> LeaderConnection:
            tried_at.append(loop.time())
            if is_down:
                raise ConnectionRefusedError(f"broker {broker_id} is down")
            return await ScriptedLeader.connect(leader, broker_id)

        leader.connect = connect  # type: ignore[method-assign]
        following = Following(leader)
        await asyncio.sleep(5.0)
        pauses_s = [after - before for before, after in pairwise(tried_at)]
        for pause_s, expected_s in zip(pauses_s[1:], (0.1, 0.2, 0.4, 0.8, 1.0, 1.0), strict=False):
            assert 0.8 * expected_s <= pause_s <= 1.2 * expected_s
        assert len(pauses_s) >= 6
        tried_at.clear()
        following.fetcher.on_broker_changed(restarted=False)
        await asyncio.sleep(0.2)
        assert len(tried_at) == 3, "at once, and after 50 and 100 ms"
        is_down = False
        following.fetcher.on_broker_changed(restarted=False)
        await asyncio.sleep(0.001)
        assert len(leader.asked) == 1
        await following.fetcher.stop()

    run(body())
