"""What coordinators of groups answer is judged where the bytes pass: by the committed records, and by the requests."""

from __future__ import annotations

from typing import Any

import pytest
from support.chaos.offsets_topic import GROUP, KEY, TOPIC_ID, OffsetsTopic, classic, epochs, member

from raftwerk.broker.groups.classic.consumer_protocol import write_assignment
from raftwerk.broker.groups.records.consumer_group_records import member_tombstones
from raftwerk.broker.groups.records.offset_and_classic_records import classic_group_record
from raftwerk.chaos.sim.invariants.answers.answered_requests import watch_answers
from raftwerk.chaos.sim.invariants.groups.group_answers import GroupAnswers
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import encode_request, encode_response
from raftwerk.wire.frames import RequestHeader
from raftwerk.wire.frames import encode_request as request_frame
from raftwerk.wire.frames import encode_response as response_frame

NOT_COMMITTED = "what a coordinator of groups has answered is committed"
STALE = "a stable offset is not older than its request"
UNCOMMITTED = "no offset is answered that was not committed"
UNSTABLE = "no stable offset is answered while a transaction may change it"
OTHER_PLAN = "an assignment is what its leader has sent"
FORMER = "a request of a former epoch is refused"
REPEATED = "a repeated request has the answer of the first"
GONE = "what was deleted is gone"
KNOWN = "a group of the log is known"
DESCRIBED = "a group is described as its log says"
OLD_EPOCH = "who commits is in the present epoch"


class _Pipe:
    """One direction of a connection."""

    on_sent: Any = None
    on_read: Any = None


class Client:
    """A client whose requests and answers are watched, and the partition of the group."""

    def __init__(self) -> None:
        self.topic = OffsetsTopic()
        self.answers = GroupAnswers({0: self.topic.log}, lambda topic: False)
        self._there, self._back = _Pipe(), _Pipe()
        watch_answers(self._there, self._back, (), (self.answers.requests(),))  # type: ignore[arg-type]
        self._number = 0

    def ask(self, api: ApiKey, version: int, fields: dict[str, Any]) -> int:
        """Send a request, in two pieces; returns its number."""
        self._number += 1
        header = RequestHeader(api, version, self._number, "c")
        frame = b"".join(bytes(part) for part in request_frame(header, encode_request(api, version, fields)))
        self._there.on_sent(frame[:7])
        self._there.on_sent(frame[7:])
        return self._number

    def answer(self, number: int, api: ApiKey, version: int, fields: dict[str, Any]) -> None:
        """Answer a request, which is judged at once. Raises `InvariantBroken`."""
        parts = response_frame(api, version, number, encode_response(api, version, fields))
        self._back.on_sent(b"".join(bytes(part) for part in parts))
        self.answers.check({0: 0})

    def commit(self, offset: int, member_id: str = "", epoch: int = -1) -> int:
        who = {"group_id": GROUP, "generation_id_or_member_epoch": epoch, "member_id": member_id}
        return self.ask(ApiKey.OFFSET_COMMIT, 8, {**who, "topics": _topics(committed_offset=offset)})

    def committed(self, number: int, code: int = 0) -> None:
        self.answer(number, ApiKey.OFFSET_COMMIT, 8, {"topics": _topics(error_code=code)})

    def fetch(self, *, stable: bool = True) -> int:
        topics = [{"name": KEY.topic_partition.topic, "partition_indexes": [0]}]
        groups = [{"group_id": GROUP, "topics": topics}]
        return self.ask(ApiKey.OFFSET_FETCH, 8, {"groups": groups, "require_stable": stable})

    def fetched(self, number: int, offset: int) -> None:
        groups = [{"group_id": GROUP, "topics": _topics(committed_offset=offset, metadata="")}]
        self.answer(number, ApiKey.OFFSET_FETCH, 8, {"groups": groups})

    def sync(self, member_id: str, generation: int, plan: dict[str, bytes]) -> int:
        assignments = [{"member_id": one, "assignment": given} for one, given in plan.items()]
        fields = {"group_id": GROUP, "generation_id": generation, "member_id": member_id, "assignments": assignments}
        return self.ask(ApiKey.SYNC_GROUP, 5, fields)

    def synced(self, number: int, assignment: bytes, code: int = 0) -> None:
        self.answer(number, ApiKey.SYNC_GROUP, 5, {"error_code": code, "assignment": assignment})

    def join(self, member_id: str, *protocols: tuple[str, bytes]) -> int:
        rows = [{"name": name, "metadata": metadata} for name, metadata in protocols]
        fields = {"group_id": GROUP, "member_id": member_id, "protocol_type": "consumer", "protocols": rows}
        return self.ask(ApiKey.JOIN_GROUP, 9, {**fields, "session_timeout": 9, "rebalance_timeout": 9})

    def joined(self, number: int, generation: int, protocol: str, members: dict[str, bytes]) -> None:
        rows = [{"member_id": one, "metadata": metadata} for one, metadata in members.items()]
        fields = {"generation_id": generation, "protocol_type": "consumer", "protocol_name": protocol}
        self.answer(number, ApiKey.JOIN_GROUP, 9, {**fields, "leader": "a", "member_id": "a", "members": rows})

    def live(self, member_id: str, generation: int, code: int = 0) -> None:
        fields = {"group_id": GROUP, "member_id": member_id, "generation_id": generation}
        self.answer(self.ask(ApiKey.HEARTBEAT, 4, fields), ApiKey.HEARTBEAT, 4, {"error_code": code})

    def beat(self, member_id: str, epoch: int, **fields: Any) -> int:
        who = {"group_id": GROUP, "member_id": member_id, "member_epoch": epoch}
        return self.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {"rebalance_timeout": -1, **who, **fields})

    def told(self, number: int, epoch: int, assigned: tuple[int, ...] | None) -> None:
        rows = (
            None if assigned is None else {"topic_partitions": [{"topic_id": TOPIC_ID, "partitions": list(assigned)}]}
        )
        fields = {"member_id": "a", "member_epoch": epoch, "assignment": rows}
        self.answer(number, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields)


def _topics(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": KEY.topic_partition.topic, "partitions": [{"partition_index": 0, **fields}]}]


def test_a_commit_is_committed_when_it_is_answered() -> None:
    client = Client()
    number = client.commit(5)
    client.topic.commit(5)
    client.committed(number)
    client.committed(client.commit(6), code=16)
    with pytest.raises(InvariantBroken, match=NOT_COMMITTED):
        client.committed(client.commit(6))


def test_an_earlier_commit_of_the_same_offset_is_another_one() -> None:
    client = Client()
    client.topic.commit(5)
    with pytest.raises(InvariantBroken, match=NOT_COMMITTED):
        client.committed(client.commit(5))


def test_a_commit_in_a_transaction_is_one_of_its_producer() -> None:
    client = Client()
    fields = {"transactional_id": "t", "group_id": GROUP, "producer_id": 8, "topics": _topics(committed_offset=5)}
    for producer in (8, 9):
        number = client.ask(ApiKey.TXN_OFFSET_COMMIT, 3, {**fields, "producer_id": 8})
        client.topic.commit(5, producer=producer)
        if producer == 8:
            client.answer(number, ApiKey.TXN_OFFSET_COMMIT, 3, {"topics": _topics(error_code=0)})
            continue
        with pytest.raises(InvariantBroken, match=NOT_COMMITTED):
            client.answer(number, ApiKey.TXN_OFFSET_COMMIT, 3, {"topics": _topics(error_code=0)})


def test_a_commit_of_a_former_generation() -> None:
    client = Client()
    client.topic.append(classic(4, {"a": b""}))
    number = client.commit(5, "a", 4)
    client.topic.commit(5)
    client.committed(number)
    number = client.commit(6, "a", 3)
    client.topic.commit(6)
    with pytest.raises(InvariantBroken, match=OLD_EPOCH):
        client.committed(number)


def test_a_stable_offset_is_as_new_as_its_request() -> None:
    client = Client()
    client.topic.commit(5)
    before = client.fetch()
    client.topic.commit(6)
    after, unstable = client.fetch(), client.fetch(stable=False)
    client.fetched(before, 5)
    client.fetched(unstable, 5)
    with pytest.raises(InvariantBroken, match=STALE):
        client.fetched(after, 5)


def test_no_offset_is_the_answer_where_nothing_is_committed() -> None:
    client = Client()
    number = client.fetch()
    client.topic.commit(5)
    client.fetched(number, -1)
    with pytest.raises(InvariantBroken, match=STALE):
        client.fetched(client.fetch(), -1)


@pytest.mark.parametrize("stable", [True, False])
def test_an_offset_that_was_never_committed(stable: bool) -> None:
    client = Client()
    client.topic.commit(5)
    with pytest.raises(InvariantBroken, match=UNCOMMITTED):
        client.fetched(client.fetch(stable=stable), 6)


def test_an_offset_that_a_transaction_may_change() -> None:
    client = Client()
    client.topic.commit(5)
    client.topic.commit(6, producer=8)
    client.fetched(client.fetch(stable=False), 5)
    with pytest.raises(InvariantBroken, match=UNSTABLE):
        client.fetched(client.fetch(), 5)


def test_an_assignment_is_committed_and_what_the_leader_sent() -> None:
    client = Client()
    leader, other = client.sync("a", 4, {"a": b"0", "b": b"1"}), client.sync("b", 4, {})
    client.synced(client.sync("b", 4, {}), b"", code=27)
    client.topic.append(classic(4, {"a": b"0", "b": b"1"}))
    client.synced(leader, b"0")
    client.synced(other, b"1")


def test_an_assignment_of_a_former_generation() -> None:
    client = Client()
    client.sync("a", 3, {"a": b"0"})
    client.topic.append(classic(3, {"a": b"0"}))
    with pytest.raises(InvariantBroken, match=NOT_COMMITTED):
        client.synced(client.sync("a", 4, {"a": b"1"}), b"0")


def test_an_assignment_that_the_leader_did_not_send() -> None:
    client = Client()
    number = client.sync("a", 4, {"a": b"0"})
    client.topic.append(classic(4, {"a": b"2"}))
    with pytest.raises(InvariantBroken, match=OTHER_PLAN):
        client.synced(number, b"2")


def test_the_coordinator_of_a_consumer_group_assigns_to_classic_members() -> None:
    client = Client()
    client.topic.append(classic(3, {"a": b""}))
    client.topic.append(classic_group_record(GROUP, None), *epochs(4), *member("a", 4, (0, 2)))
    number = client.sync("a", 4, {"a": b"0"})
    client.synced(number, write_assignment(1, [("t", 0), ("t", 2)]))
    with pytest.raises(InvariantBroken, match=NOT_COMMITTED):
        client.synced(client.sync("a", 4, {}), write_assignment(1, [("t", 1)]))


def test_a_heartbeat_tells_of_a_committed_epoch_and_assignment() -> None:
    client = Client()
    client.topic.append(*epochs(4), *member("a", 4, (0, 2)))
    client.told(client.beat("a", 4), 4, None)
    client.told(client.beat("a", 4), 4, (0, 2))
    with pytest.raises(InvariantBroken, match=NOT_COMMITTED):
        client.told(client.beat("a", 4), 5, None)
    with pytest.raises(InvariantBroken, match=NOT_COMMITTED):
        client.told(client.beat("a", 4), 4, (0, 1))


def test_who_sends_all_fields_is_told_the_assignment() -> None:
    """As who joins, or may have missed an answer: some fields alone ask for nothing."""
    client = Client()
    client.topic.append(*epochs(4), *member("a", 4, (0, 2)))
    whole = {"rebalance_timeout": 1_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    client.told(client.beat("a", 4, **whole), 4, (0, 2))
    client.told(client.beat("a", 4, subscribed_topic_names=["t"]), 4, None)
    for number in (client.beat("a", 4, **whole), client.beat("a", 0)):
        with pytest.raises(InvariantBroken, match="a member that sends all fields is told its assignment"):
            client.told(number, 4, None)


def test_a_member_has_left_when_that_is_answered() -> None:
    client = Client()
    client.topic.append(*epochs(4), *member("a", 4, (0,)))
    number = client.beat("a", -1)
    client.topic.append(*member_tombstones(GROUP, "a"), *epochs(5))
    client.told(number, -1, None)
    with pytest.raises(InvariantBroken, match=NOT_COMMITTED):
        client.told(client.beat("a", -1), -1, None)


def test_a_heartbeat_of_a_former_generation() -> None:
    client = Client()
    client.topic.append(classic(4, {"a": b""}))
    client.live("a", 4)
    client.live("a", 3, code=22)
    for member_id, generation in (("a", 3), ("b", 4)):
        with pytest.raises(InvariantBroken, match=FORMER):
            client.live(member_id, generation)
    client.topic.append(classic(5, {}))
    client.topic.append(classic_group_record(GROUP, None))
    client.live("a", 1)


def test_a_generation_has_begun_when_a_member_is_told_of_it() -> None:
    client = Client()
    client.topic.append(classic(4, {"a": b""}))
    client.joined(client.join("a", ("range", b"")), 5, "range", {})
    with pytest.raises(InvariantBroken, match=FORMER):
        client.live("a", 4)


def test_a_heartbeat_of_a_former_epoch() -> None:
    """Who has not got its new epoch may say so with the one before, if it reads no more than is assigned to it."""
    client = Client()
    client.topic.append(*epochs(3), *member("a", 3, (0, 2)))
    client.topic.append(*epochs(4), *member("a", 4, (0, 2)))
    more = [{"topic_id": TOPIC_ID, "partitions": [0, 1]}]
    asked: tuple[dict[str, Any], ...] = ({"topic_partitions": more}, {}, {"topic_partitions": []})
    for fields in asked:
        with pytest.raises(InvariantBroken, match=FORMER):  # its previous epoch is 4, too
            client.told(client.beat("a", 3, **fields), 4, (0, 2))


def test_a_generation_has_one_protocol_and_its_members_one_assignment() -> None:
    client = Client()
    client.topic.append(classic(4, {"a": b"0"}))
    both = ("range", b"r"), ("sticky", b"s")
    client.joined(client.join("a", *both), 4, "range", {"a": b"r"})
    with pytest.raises(InvariantBroken, match=REPEATED):
        client.joined(client.join("a", *both), 4, "sticky", {})
    client.sync("a", 4, {"a": b"0"})
    client.synced(client.sync("a", 4, {"a": b"1"}), b"0")
    client.topic.append(classic(4, {"a": b"1"}))
    with pytest.raises(InvariantBroken, match=REPEATED):
        client.synced(client.sync("a", 4, {}), b"1")


def test_the_protocol_that_most_members_want_of_those_that_all_have() -> None:
    client = Client()
    client.topic.append(classic(4, {"a": b"0"}))
    number = client.join("a", ("x", b"ax"), ("y", b"ay"))
    client.join("b", ("y", b"by"), ("x", b"bx"))
    client.join("c", ("z", b"cz"), ("y", b"cy"), ("x", b"cx"))
    client.joined(number, 5, "y", {"a": b"ay", "b": b"by", "c": b"cy"})
    with pytest.raises(InvariantBroken, match="the protocol of a generation has the most votes"):
        client.joined(client.join("a", ("x", b"ax"), ("y", b"ay")), 6, "x", {"a": b"ax", "b": b"bx", "c": b"cx"})
    with pytest.raises(InvariantBroken, match="a leader is told what its members have sent"):
        client.joined(client.join("a", ("x", b"ax")), 7, "x", {"a": b"ax", "b": b"by"})


def _deleted(client: Client, code: int = 0) -> None:
    number = client.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]})
    client.answer(number, ApiKey.DELETE_GROUPS, 2, {"results": [{"group_id": GROUP, "error_code": code}]})


def test_a_deleted_group_is_gone_with_its_offsets() -> None:
    client = Client()
    client.topic.append(classic(4, {}))
    client.topic.commit(5)
    with pytest.raises(InvariantBroken, match=GONE):
        _deleted(client)
    with pytest.raises(InvariantBroken, match=KNOWN):
        _deleted(client, code=69)
    client.topic.append(classic_group_record(GROUP, None))
    with pytest.raises(InvariantBroken, match=GONE):
        _deleted(client)
    client.topic.commit(None)
    _deleted(client)
    _deleted(client, code=69)


def test_a_deleted_offset_is_gone() -> None:
    client = Client()
    client.topic.commit(5)
    asked = {"group_id": GROUP, "topics": [{"name": KEY.topic_partition.topic, "partitions": [{"partition_index": 0}]}]}
    answer = {"error_code": 0, "topics": _topics(error_code=0)}
    with pytest.raises(InvariantBroken, match=GONE):
        client.answer(client.ask(ApiKey.OFFSET_DELETE, 0, asked), ApiKey.OFFSET_DELETE, 0, answer)
    number = client.ask(ApiKey.OFFSET_DELETE, 0, asked)
    client.topic.commit(None)
    client.topic.commit(6)
    client.answer(number, ApiKey.OFFSET_DELETE, 0, answer)


def test_a_classic_group_is_described_as_it_was_written() -> None:
    client = Client()
    client.topic.append(classic(4, {"a": b"0"}))
    group = {"group_id": GROUP, "group_state": "Stable", "protocol_type": "consumer", "protocol_data": "range"}
    for assignment in (b"0", b"1"):
        members = [{"member_id": "a", "client_id": "c", "client_host": "/h", "member_assignment": assignment}]
        rows = [{**group, "members": [{**one, "member_metadata": b""} for one in members]}]
        number = client.ask(ApiKey.DESCRIBE_GROUPS, 6, {"groups": [GROUP]})
        if assignment == b"0":
            client.answer(number, ApiKey.DESCRIBE_GROUPS, 6, {"groups": rows})
            continue
        with pytest.raises(InvariantBroken, match=DESCRIBED):
            client.answer(number, ApiKey.DESCRIBE_GROUPS, 6, {"groups": rows})


def test_a_group_of_the_log_is_listed() -> None:
    client = Client()
    client.topic.commit(5)
    number = client.ask(ApiKey.LIST_GROUPS, 5, {})
    row = {"group_id": GROUP, "protocol_type": "", "group_state": "Empty", "group_type": "classic"}
    client.answer(number, ApiKey.LIST_GROUPS, 5, {"groups": [row]})
    with pytest.raises(InvariantBroken, match=KNOWN):
        client.answer(client.ask(ApiKey.LIST_GROUPS, 5, {}), ApiKey.LIST_GROUPS, 5, {"groups": []})


def _listed(client: Client, *, number: int | None = None, **fields: str) -> None:
    """The group is listed to a client that has asked under this number, or asks now."""
    asked = client.ask(ApiKey.LIST_GROUPS, 5, {}) if number is None else number
    row = {"group_id": GROUP, "protocol_type": "consumer", **fields}
    client.answer(asked, ApiKey.LIST_GROUPS, 5, {"groups": [row]})


def test_a_consumer_group_is_shown_as_it_was_committed() -> None:
    client = Client()
    with pytest.raises(InvariantBroken, match=DESCRIBED):
        _listed(client, group_type="consumer", group_state="Stable")
    client.topic.append(*member("a", 1, (0,)), *epochs(1))
    number = client.ask(ApiKey.LIST_GROUPS, 5, {})
    _listed(client, group_type="consumer", group_state="Stable")
    client.topic.append(*member("b", 2, (1,)), *epochs(2))
    _listed(client, group_type="consumer", group_state="Reconciling")
    _listed(client, number=number, group_type="consumer", group_state="Stable")
    for kind, state in (("consumer", "Stable"), ("consumer", "Empty"), ("classic", "Stable")):
        with pytest.raises(InvariantBroken, match=DESCRIBED):
            _listed(client, group_type=kind, group_state=state)


def test_a_consumer_group_is_described_as_it_was_committed() -> None:
    client = Client()
    client.topic.append(*member("a", 1, (0,)), *epochs(1))
    parts = {"topic_partitions": [{"topic_id": TOPIC_ID, "topic_name": "t", "partitions": [0]}]}
    row: dict[str, Any] = {"member_id": "a", "instance_id": None, "rack_id": None}
    row |= {"client_id": "c", "client_host": "/h"}
    written = client.topic.log.consumer[GROUP]
    names, target = written.members["a"].topic_names, written.target.get("a", ())
    row |= {"subscribed_topic_names": list(names), "subscribed_topic_regex": written.members["a"].topic_regex}
    row |= {"assignment": parts, "target_assignment": parts if target else {"topic_partitions": []}}
    group = {"group_id": GROUP, "group_state": "Stable", "assignor_name": "uniform", "error_message": None}
    for epoch in (1, 2):
        told = {**group, "group_epoch": epoch, "assignment_epoch": epoch, "members": [{**row, "member_epoch": epoch}]}
        number = client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [GROUP]})
        if epoch == 1:
            client.answer(number, ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"groups": [told]})
            continue
        with pytest.raises(InvariantBroken, match=DESCRIBED):
            client.answer(number, ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"groups": [told]})


def test_answers_of_an_event_that_was_interrupted_are_not_judged() -> None:
    client = Client()
    parts = response_frame(
        ApiKey.OFFSET_COMMIT,
        8,
        client.commit(5),
        encode_response(ApiKey.OFFSET_COMMIT, 8, {"topics": _topics(error_code=0)}),
    )
    client._back.on_sent(b"".join(bytes(part) for part in parts))
    assert client.answers.answered
    client.answers.forget()
    client.answers.check()
