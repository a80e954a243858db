"""Background tasks, accepted connections, signals, and the end of a process whose invariant broke."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from raftwerk.runtime.accepted_sockets import AcceptedSocket, AcceptingSockets
from raftwerk.runtime.loop import EXIT_BROKEN_INVARIANT, TaskSet, real_runtime, run, stop_event_on_signals


def test_run_returns_the_result() -> None:
    async def main() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert run(main()) == "uvloop"


def test_a_seeded_runtime_repeats() -> None:
    assert real_runtime(5).rng.random() == real_runtime(5).rng.random()
    assert abs(real_runtime().clock.wall_ms() - real_runtime().clock.wall_ms()) < 10_000


def test_errors_of_background_tasks_reach_the_loop() -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(str(context["exception"])))

        async def fail() -> None:
            raise ValueError("lost")

        tasks = TaskSet()
        await asyncio.wait([tasks.spawn(fail(), "failing")])
        await asyncio.sleep(0)
        assert len(tasks) == 0
        return seen

    assert run(main()) == ["lost"]


def test_cancel_all_waits_for_the_tasks_to_end() -> None:
    async def main() -> list[int]:
        ended: list[int] = []

        async def wait(number: int) -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                await asyncio.sleep(0)
                ended.append(number)

        tasks = TaskSet()
        for number in range(3):
            tasks.spawn(wait(number))
        await asyncio.sleep(0)
        await tasks.cancel_all()
        return ended

    assert sorted(run(main())) == [0, 1, 2]


def test_a_signal_sets_the_stop_event() -> None:
    async def main() -> None:
        event = stop_event_on_signals(signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(event.wait(), 5)

    run(main())


@pytest.mark.process
def test_a_broken_invariant_in_a_callback_ends_the_process() -> None:
    script = (
        "import asyncio\n"
        "from raftwerk.runtime.loop import run\n"
        "from raftwerk.runtime.invariants import invariant\n"
        "async def main():\n"
        "    asyncio.get_running_loop().call_soon(invariant, False, 'two and two are four')\n"
        "    await asyncio.sleep(60)\n"
        "run(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == EXIT_BROKEN_INVARIANT
    assert "two and two are four" in ended.stderr


def _full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def _closed_pipe() -> int:
    read_end, write_end = os.pipe()
    os.close(read_end)
    return write_end


@pytest.mark.process
@pytest.mark.parametrize("new_stderr", [_full_disk, _closed_pipe])
def test_a_broken_invariant_ends_the_process_where_nothing_can_be_written_to_stderr(
    new_stderr: Callable[[], int],
) -> None:
    script = (
        "import asyncio\n"
        "from raftwerk.runtime.log_lines import configure_logging\n"
        "from raftwerk.runtime.loop import run\n"
        "from raftwerk.runtime.invariants import invariant\n"
        "async def main():\n"
        "    asyncio.get_running_loop().call_soon(invariant, False, 'two and two are four')\n"
        "    await asyncio.sleep(60)\n"
        "configure_logging()\n"
        "run(main())\n"
    )
    stderr = new_stderr()
    try:
        ended = subprocess.run([sys.executable, "-c", script], stderr=stderr, timeout=30, check=False)
    finally:
        os.close(stderr)
    assert ended.returncode == EXIT_BROKEN_INVARIANT


def test_an_error_about_one_connection_does_not_end_the_accepting(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, start_serving=False)
        accepted: asyncio.Queue[AcceptedSocket] = asyncio.Queue()

        def on_accepted(one: AcceptedSocket) -> None:
            accepted.put_nowait(one)
            if accepted.qsize() == 1:
                raise MemoryError("of the first")

        accepting = AcceptingSockets(server, 10, on_accepted)
        port = server.sockets[0].getsockname()[1]
        readers = [(await asyncio.open_connection("127.0.0.1", port))[0] for _ in range(3)]
        async with asyncio.timeout(10):
            assert await readers[0].read() == b"", "it is closed"
            while accepted.qsize() < 3:  # noqa: ASYNC110
                await asyncio.sleep(0)
        accepting.close()
        for _ in range(3):
            accepted.get_nowait().close()

    run(main())
    (told,) = [record for record in caplog.records if "is closed" in record.getMessage()]
    assert told.getMessage() == "a connection from 127.0.0.1 is closed, since it could not be taken up"
    assert told.exc_info is not None
    assert isinstance(told.exc_info[1], MemoryError)
