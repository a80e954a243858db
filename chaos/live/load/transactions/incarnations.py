"""Keeps one incarnation of a transactional id running, as a process of its own, until standard input ends.

`python -m raftwerk.chaos.live.load.transactions.incarnations TASK`.

The role of the task says what runs: `writer` or `processor`. When an incarnation has died, its successor follows, at
once or so late that the coordinator has ended the transaction by then. When one stands still, its successor follows at
once, and soon after that the former one is woken: from then on it is a zombie. One that neither stands still nor does
anything for a minute is killed: librdkafka waits for ever for a group coordinator that has left the cluster's metadata
meanwhile (its issues 5456 and 5511).
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace

from ..child_process import tied
from ..load_task import Task, asked_to_stop
from .transactional_client import READY, STALLED, TRANSACTION_TIMEOUT_MS

_TICK_S = 0.1
_RESTART_PAUSE_S = 0.3
_LATE_PROBABILITY = 0.15
_ZOMBIE_PAUSE_MAX_S = 4.0
_ZOMBIE_LIMIT_S = 25.0
_SILENCE_LIMIT_S = 60.0


@dataclass
class Incarnation:
    """One process. `wake_at` is the time at which a stalled one is woken."""

    name: str
    process: subprocess.Popen[bytes]
    history: str
    """The file that it writes whenever it does something."""
    told: bytes = b""
    wake_at: float | None = None
    history_bytes: int = -1
    busy_at: float = 0.0
    """When its history was last seen to grow."""

    @property
    def is_ready(self) -> bool:
        """Whether it has fenced its predecessors."""
        return READY in self.told

    @property
    def is_stalled(self) -> bool:
        """Whether it has stood still, or is about to."""
        return STALLED in self.told

    def listen(self) -> None:
        """Read what it has told, without waiting."""
        output = self.process.stdout
        while output is not None and select.select([output], [], [], 0)[0]:
            data = os.read(output.fileno(), 1 << 12)
            if not data:
                return
            self.told += data

    def kill_if_silent(self, now: float) -> None:
        """Kill it when it has done nothing for the time limit. Then the next one follows, as after a crash."""
        history_bytes = os.path.getsize(self.history) if os.path.exists(self.history) else 0
        if history_bytes != self.history_bytes:
            self.history_bytes, self.busy_at = history_bytes, now
        elif now - self.busy_at > _SILENCE_LIMIT_S and self.process.poll() is None:
            print(f"{self.name} has done nothing for {_SILENCE_LIMIT_S:g} s and is killed", file=sys.stderr)
            self.process.kill()

    def ask_to_stop(self) -> None:
        """End its standard input."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def wait(self, deadline: float) -> int | None:
        """Its exit code; None if it has not ended in time. It is woken each time it stands still."""
        while (code := self.process.poll()) is None and time.monotonic() < deadline:
            self.process.send_signal(signal.SIGCONT)
            self.kill_if_silent(time.monotonic())
            time.sleep(_TICK_S)
        return code


class Incarnations:
    """The incarnations of one transactional id."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._rng = random.Random(f"{task.seed}/{task.name}")
        self._count = 0
        self._zombies: list[Incarnation] = []

    def run(self) -> int:
        """Run until standard input ends, and then until an incarnation has ended by itself; the exit code."""
        current = self._start()
        start_at: float | None = None
        while not asked_to_stop():
            time.sleep(_TICK_S)
            now = time.monotonic()
            current.listen()
            self._wake(current, now)
            if current.is_stalled:
                self._zombies.append(current)
                current = self._start()
                continue
            current.kill_if_silent(now)
            if current.process.poll() is not None and start_at is None:
                is_late = self._rng.random() < _LATE_PROBABILITY
                start_at = now + (_RESTART_PAUSE_S if not is_late else TRANSACTION_TIMEOUT_MS / 1000 * 1.4)
            elif start_at is not None and now >= start_at:
                current, start_at = self._start(), None
        return self._end(current)

    def _start(self) -> Incarnation:
        self._count += 1
        task = replace(self.task, incarnation=self._count)
        path = os.path.join(os.path.dirname(self.task.history), f"{task.process}.jsonl")
        module = f"{__package__}.{self.task.role}"
        command = tied([sys.executable, "-P", "-m", module, replace(task, history=path).to_argument()])
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return Incarnation(task.process, process, path)

    def _wake(self, current: Incarnation, now: float) -> None:
        """Wake those that stand still, some time after their successor was ready."""
        for zombie in self._zombies:
            if zombie.wake_at is None and current.is_ready:
                zombie.wake_at = now + self._rng.uniform(0.0, _ZOMBIE_PAUSE_MAX_S)
            if zombie.wake_at is not None and now >= zombie.wake_at and zombie.process.poll() is None:
                zombie.process.send_signal(signal.SIGCONT)

    def _end(self, current: Incarnation) -> int:
        """The last incarnation ends by itself; if one does not, another one follows."""
        deadline = time.monotonic() + self.task.limit_s
        for zombie in self._zombies:
            zombie.ask_to_stop()
        current.ask_to_stop()
        while (code := current.wait(deadline)) and time.monotonic() < deadline:
            time.sleep(_RESTART_PAUSE_S)
            current = self._start()
            current.ask_to_stop()
        limit = time.monotonic() + _ZOMBIE_LIMIT_S
        for one in (current, *self._zombies):
            if one.wait(limit) is None:
                one.process.kill()
                one.process.wait()
        return 0 if code == 0 else 1


if __name__ == "__main__":
    sys.exit(Incarnations(Task.from_argument(sys.argv[1])).run())
