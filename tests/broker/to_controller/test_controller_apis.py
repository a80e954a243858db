"""The controller's listener and the broker's channel to it, over real sockets on the loopback."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.broker.broker_harness import Harness, decode_answer, run, settle, until

from raftwerk.broker.apis.api_table import controller_dispatcher
from raftwerk.broker.apis.controller import forwarding
from raftwerk.broker.config import BrokerConfig
from raftwerk.broker.network.connection import ConnectionLimits
from raftwerk.broker.network.request import Request
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.broker.services import ControllerServices
from raftwerk.broker.to_controller.controller_channel import ControllerAddress, ControllerChannel, address_bytes
from raftwerk.broker.to_controller.producer_id_manager import ProducerIdBlock, ProducerIdManager
from raftwerk.controller.metadata.metadata_loader import MetadataLoader
from raftwerk.security.principals import ANONYMOUS
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import connect
from raftwerk.wire.codec import decode_response, encode_request
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.fetch import FetchResponse
from raftwerk.wire.frames import RequestHeader

NOT_CONTROLLER = int(ErrorCode.NOT_CONTROLLER)


class FakeController:
    """Answers everything with `code`; remembers what it heard."""

    def __init__(self, code: int = 0, active: bool = True) -> None:
        self.code = code
        self.active = active
        self.heard: list[str] = []
        self.lost: list[int] = []
        self.hang = False
        self.pending: list[asyncio.Future[dict[str, Any]]] = []
        """The answers that a test gives when `hang` is set."""

    def on_broker_disconnected(self, broker_id: int) -> None:
        self.lost.append(broker_id)

    def __getattr__(self, name: str) -> Callable[[Any], asyncio.Future[dict[str, Any]]]:
        if name.startswith("_"):
            raise AttributeError(name)

        def method(request: Any, *rights: Any) -> asyncio.Future[dict[str, Any]]:
            self.heard.append(name)
            future = asyncio.get_running_loop().create_future()
            if self.hang:
                self.pending.append(future)
            else:
                row = {"name": "t", "error_code": self.code}
                future.set_result({"error_code": self.code, "topics": [row], "broker_epoch": 7, "is_fenced": False})
            return future

        return method


class FakeQuorum:
    async def handle_request(self, api_key: int, version: int, request: Any) -> dict[str, Any]:
        return {"error_code": 0, "topics": []}

    async def handle_fetch(self, version: int, request: Any) -> FetchResponse:
        return FetchResponse(error_code=0, session_id=0)


class Node:
    """A controller listener on a port of the system's choice."""

    def __init__(self, controller: FakeController) -> None:
        self.controller = controller
        loader = MetadataLoader("c")
        quorum: Any = FakeQuorum()
        quorum_controller: Any = controller
        services = ControllerServices(
            "c",
            quorum,
            quorum_controller,
            loader,
            lambda: {1: ("h", 1)},
            {"kraft.version": (0, 1)},
            BrokerConfig(1, "c", (), "PLAINTEXT", values={"node.id": "1"}),
        )
        config = ServerConfig("CONTROLLER", "127.0.0.1", 0, ConnectionLimits(ordered_start=False))
        self.server = Server(config, controller_dispatcher(services, lambda error: None))

    async def __aenter__(self) -> Node:
        await self.server.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.server.stop()

    @property
    def address(self) -> ControllerAddress:
        return ControllerAddress(id(self) % 1000, "127.0.0.1", self.server.port)


def channel_to(find: Callable[[], ControllerAddress | None]) -> ControllerChannel:
    runtime: Any = SimpleNamespace(rng=random.Random(1))
    return ControllerChannel(find, runtime, "broker-1", 3000)


HEARTBEAT = {"broker_id": 4, "broker_epoch": 7, "current_metadata_offset": 1, "want_fence": False}


def forwarded(version: int = 5) -> tuple[Request, bytes]:
    fields = {"topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1}], "timeout": 2000}
    body = encode_request(ApiKey.CREATE_TOPICS, version, fields)
    request = Request(
        SimpleNamespace(peer="192.0.2.7", principal=ANONYMOUS),
        RequestHeader(ApiKey.CREATE_TOPICS, version, 5, "c"),
        memoryview(body),
        0,
    )
    return request, body


def test_the_end_of_a_brokers_connection_is_reported() -> None:
    async def main() -> None:
        controller = FakeController()
        async with Node(controller) as node:
            connection = await connect("127.0.0.1", node.server.port)
            await connection.request(ApiKey.API_VERSIONS, 0, {})
            for _ in range(2):
                await connection.request(ApiKey.BROKER_HEARTBEAT, 0, HEARTBEAT)
            assert controller.lost == []
            connection.close()
            await until(lambda: controller.lost)
            assert controller.lost == [4]

    run(main())


def test_the_end_of_an_earlier_connection_is_not_reported() -> None:
    async def main() -> None:
        controller = FakeController()
        async with Node(controller) as node:
            former = await connect("127.0.0.1", node.server.port)
            stranger = await connect("127.0.0.1", node.server.port)
            present = await connect("127.0.0.1", node.server.port)
            await stranger.request(ApiKey.BROKER_HEARTBEAT, 0, {**HEARTBEAT, "broker_id": 5})
            for connection in (former, present):
                await connection.request(ApiKey.BROKER_HEARTBEAT, 0, HEARTBEAT)
            former.close()
            stranger.close()
            await until(lambda: controller.lost)
            assert controller.lost == [5]
            present.close()
            await until(lambda: len(controller.lost) > 1)
            assert controller.lost == [5, 4]

    run(main())


def test_a_connection_over_which_nothing_was_accepted_is_no_brokers() -> None:
    """A second process with the broker's id is refused: its end is not reported, and the end of the broker's own is."""

    async def main() -> None:
        controller = FakeController()
        async with Node(controller) as node:
            own, refused, stranger = [await connect("127.0.0.1", node.server.port) for _ in range(3)]
            await own.request(ApiKey.BROKER_HEARTBEAT, 0, HEARTBEAT)
            await stranger.request(ApiKey.BROKER_HEARTBEAT, 0, {**HEARTBEAT, "broker_id": 5})
            controller.code = ErrorCode.STALE_BROKER_EPOCH
            await refused.request(ApiKey.BROKER_HEARTBEAT, 0, HEARTBEAT)
            refused.close()
            await until(lambda: len(node.server.connections) == 2)
            stranger.close()
            await until(lambda: controller.lost)
            assert controller.lost == [5]
            own.close()
            await until(lambda: len(controller.lost) > 1)
            assert controller.lost == [5, 4]

    run(main())


def test_the_end_of_a_connection_is_reported_that_ended_before_the_broker_was_accepted() -> None:
    async def main() -> None:
        controller = FakeController()
        controller.hang = True
        async with Node(controller) as node:
            connection = await connect("127.0.0.1", node.server.port)
            answer = asyncio.ensure_future(connection.request(ApiKey.BROKER_HEARTBEAT, 0, HEARTBEAT))
            await until(lambda: controller.pending)
            connection.close()
            await asyncio.gather(answer, return_exceptions=True)
            await until(lambda: not node.server.connections)
            assert controller.lost == []
            controller.pending[0].set_result({"error_code": 0, "is_fenced": False})
            await until(lambda: controller.lost)
            assert controller.lost == [4]

    run(main())


@pytest.mark.parametrize("version", [2, 5, 7])
def test_a_forwarded_request_gets_the_controllers_response(version: int) -> None:
    async def main() -> None:
        async with Node(FakeController()) as node:
            channel = channel_to(lambda: node.address)
            answer = decode_response(ApiKey.CREATE_TOPICS, version, await channel.forward(*forwarded(version)))
            assert [(one.name, one.error_code) for one in answer.topics] == [("t", 0)]
            assert node.controller.heard == ["create_topics"]
            channel.close()

    run(main())


@pytest.mark.parametrize("active", [True, False])
def test_not_controller_is_retried_until_there_is_a_controller(active: bool) -> None:
    async def main() -> None:
        async with Node(FakeController(NOT_CONTROLLER, active)) as old, Node(FakeController()) as new:
            current = [old]
            channel = channel_to(lambda: current[0].address)
            call = asyncio.ensure_future(channel.forward(*forwarded()))
            await until(lambda: old.server.accepted_total)
            current[0] = new
            assert decode_response(ApiKey.CREATE_TOPICS, 5, await call).topics[0].error_code == 0
            channel.close()

    run(main())


class VerboseController(FakeController):
    """Its answer is large, and has the bytes of NOT_CONTROLLER in its names."""

    def create_topics(self, request: Any, *rights: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        rows = [{"name": f"\0){n}", "error_code": 0} for n in range(5_000)]
        future.set_result({"topics": rows})
        return future


def test_a_large_answer_of_the_active_controller_is_not_searched_for_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(forwarding, "decode_response", refuse)

    async def main() -> None:
        async with Node(VerboseController()) as node:
            channel = channel_to(lambda: node.address)
            answer = decode_response(ApiKey.CREATE_TOPICS, 7, await channel.forward(*forwarded(7)))
            assert len(answer.topics) == 5_000
            channel.close()

    run(main())


def test_a_request_that_hangs_at_a_former_controller_is_sent_to_the_new_one() -> None:
    async def main() -> None:
        old, new = FakeController(), FakeController()
        old.hang = True
        async with Node(old) as first, Node(new) as second:
            current = [first]
            channel = channel_to(lambda: current[0].address)
            call = asyncio.ensure_future(channel.request(ApiKey.BROKER_HEARTBEAT, 0, HEARTBEAT, timeout_ms=60_000))
            await until(lambda: old.heard)
            current[0] = second
            channel.on_leader_change()
            assert (await call).error_code == 0
            assert new.heard == ["broker_heartbeat"]
            channel.close()

    run(main())


def test_without_a_controller_a_request_times_out() -> None:
    async def main() -> None:
        channel = channel_to(lambda: None)
        with pytest.raises(ProtocolError) as caught:
            await channel.request(ApiKey.BROKER_HEARTBEAT, 0, HEARTBEAT, timeout_ms=60)
        assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT

    run(main())


def test_quorum_requests_and_fetch_are_answered() -> None:
    async def main() -> None:
        async with Node(FakeController()) as node:
            connection = await connect("127.0.0.1", node.server.port)
            fetch = await connection.request(ApiKey.FETCH, 17, {"max_wait": 1, "topics": []})
            assert fetch.error_code == 0
            vote = await connection.request(ApiKey.VOTE, 1, {"cluster_id": "c", "topics": []})
            assert vote.error_code == 0
            cluster = await connection.request(ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": 2})
            assert [(one.broker_id, one.host) for one in cluster.brokers] == [(1, "h")]
            connection.close()

    run(main())


@pytest.mark.parametrize("inner", [b"", b"\0\0", b"\x00\x03\x00\x01\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00"])
def test_an_envelope_with_another_api_is_refused(inner: bytes) -> None:
    async def main() -> None:
        async with Node(FakeController()) as node:
            connection = await connect("127.0.0.1", node.server.port)
            fields = {"request_data": inner, "request_principal": None, "client_host_address": b"\x7f\0\0\1"}
            answer = await connection.request(ApiKey.ENVELOPE, 0, fields)
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            connection.close()

    run(main())


def test_addresses() -> None:
    assert address_bytes("192.0.2.7") == bytes([192, 0, 2, 7])
    assert address_bytes("::1") == address_bytes("::1%lo") == bytes([0] * 15 + [1])
    assert address_bytes("300.1.1.1") == bytes([127, 0, 0, 1])


def test_producer_ids_are_unique_and_fetched_ahead() -> None:
    async def main() -> None:
        blocks, asked = iter(range(0, 1000, 10)), []

        async def allocate() -> ProducerIdBlock:
            asked.append(True)
            return ProducerIdBlock(next(blocks), 10)

        manager = ProducerIdManager(allocate)
        assert manager.next_id() is None
        ids: list[int | None] = [await manager.wait_for_id()]
        ids += [manager.next_id() for _ in range(8)]
        await settle()
        assert len(asked) == 2
        ids += [manager.next_id() for _ in range(11)]
        assert ids == list(range(20))
        manager.close()

    run(main())


def test_a_block_lasts_while_there_is_no_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftwerk.broker.to_controller.producer_id_manager.WAIT_S", 0.1)

    async def main() -> None:
        blocks = [ProducerIdBlock(0, 3)]

        async def allocate() -> ProducerIdBlock:
            if not blocks:
                raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT)
            return blocks.pop()

        manager = ProducerIdManager(allocate)
        assert [await manager.wait_for_id() for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ProtocolError):
            await manager.wait_for_id()
        blocks.append(ProducerIdBlock(3, 3))
        assert await manager.wait_for_id() == 3
        manager.close()

    run(main())


def test_no_producer_ids_is_a_retriable_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftwerk.broker.to_controller.producer_id_manager.WAIT_S", 0.1)

    async def main() -> None:
        async def allocate() -> ProducerIdBlock:
            raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT)

        with pytest.raises(ProtocolError) as caught:
            await ProducerIdManager(allocate).wait_for_id()
        assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(main())


def test_a_client_gets_a_response_through_the_broker() -> None:
    async def main() -> None:
        async with Node(FakeController()) as node:
            harness = Harness()
            object.__setattr__(harness.services, "controller_channel", channel_to(lambda: node.address))
            transport = harness.connect()
            fields = {"topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1}], "timeout": 2000}
            transport.deliver(harness.frame(ApiKey.CREATE_TOPICS, 7, fields))
            await until(lambda: transport.written)
            assert len(transport.frames()) == 1

    run(main())


CREATE_FIELDS = {"topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1}], "timeout": 200}


def forwarding_harness(find: Callable[[], ControllerAddress | None]) -> Harness:
    harness = Harness()
    object.__setattr__(harness.services, "controller_channel", channel_to(find))
    return harness


@pytest.mark.parametrize("version", range(2, 8))
def test_the_controllers_response_reaches_the_client_byte_for_byte(version: int) -> None:
    fields = {**CREATE_FIELDS, "timeout": 60_000}

    async def main() -> None:
        async with Node(FakeController()) as node:
            harness = forwarding_harness(lambda: node.address)
            through_broker = harness.connect()
            through_broker.deliver(harness.frame(ApiKey.CREATE_TOPICS, version, fields))
            await until(lambda: through_broker.written)
            direct = await connect("127.0.0.1", node.server.port)
            body = encode_request(ApiKey.CREATE_TOPICS, version, fields)
            answer = await direct.send_raw(ApiKey.CREATE_TOPICS, version, [body])
            (frame,) = through_broker.frames()
            assert frame[:4] == harness.correlation_id.to_bytes(4, "big")
            assert frame[5 if version >= 5 else 4 :] == bytes(answer)
            direct.close()

    run(main())


def test_a_controller_that_does_not_serve_the_version_refuses_the_request() -> None:
    async def main() -> None:
        async with Node(FakeController()) as node:
            served = node.server.dispatcher.registry.get(ApiKey.CREATE_TOPICS)
            assert served is not None
            served.versions = (2, 6)
            harness = forwarding_harness(lambda: node.address)

            async def answer(version: int) -> list[tuple[str, int]]:
                transport = harness.connect()
                transport.deliver(harness.frame(ApiKey.CREATE_TOPICS, version, CREATE_FIELDS))
                await until(lambda: transport.written)
                (frame,) = transport.frames()
                answer = decode_answer(ApiKey.CREATE_TOPICS, version, frame)
                return [(one.name, one.error_code) for one in answer.topics]

            assert await answer(6) == [("t", 0)]
            assert await answer(7) == [("t", ErrorCode.INVALID_REQUEST)]

    run(main())


@pytest.mark.parametrize("is_there", [True, False])
def test_a_malformed_forwarded_request_closes_the_connection(is_there: bool) -> None:
    async def main() -> None:
        async with Node(FakeController()) as node:
            harness = forwarding_harness(lambda: node.address if is_there else None)
            transport = harness.connect()
            transport.deliver(harness.frame(ApiKey.CREATE_TOPICS, 5, b"\x7f\xff"))
            await until(lambda: transport.closing)
            assert transport.frames() == []
            assert node.controller.heard == []

    run(main())


def test_a_forwarded_request_waits_as_long_as_its_client_asks() -> None:
    async def main() -> None:
        controller = FakeController()
        controller.hang = True
        async with Node(controller) as node:
            harness = forwarding_harness(lambda: node.address)
            loop = asyncio.get_running_loop()
            started = loop.time()
            transport = harness.connect()
            transport.deliver(harness.frame(ApiKey.CREATE_TOPICS, 7, CREATE_FIELDS))
            await until(lambda: transport.written)
            assert 0.2 <= loop.time() - started < 2.0
            (frame,) = transport.frames()
            (topic,) = decode_answer(ApiKey.CREATE_TOPICS, 7, frame).topics
            assert (topic.name, topic.error_code) == ("t", ErrorCode.REQUEST_TIMED_OUT)

    run(main())
