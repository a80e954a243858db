"""What Spark's JVM writes on standard error as it starts, without the report of Ivy, which looks for the jars.

Ivy writes a line for each jar, also if all of them are in its cache, and to standard error, not to the JVM's log.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from contextlib import suppress

_STDERR = 2
_READ_BYTES = 1 << 16
_ENDS_S = 5.0
"""How long the last lines of a JVM that has ended may take to be read."""
_BEGIN = b":: loading settings ::"
_OF_IVY = re.compile(
    rb"$|::|Ivy Default Cache set to: |The jars for the packages stored in: |downloading |"
    rb"You probably access the destination server |"
    rb"\t(?!at |\.\.\. |Suppressed: )|\S+#\S+ added as a dependency$"
)
"""How the lines of Ivy's report begin. Those with a tab that are not of it belong to the stack of an exception."""
_DOWNLOADING = b"downloading "
_PROBLEMS = b":: problems summary ::"


class JvmMessages:
    """Passes on what the JVM writes, and keeps Ivy's report back. A `notice` takes its place if jars are fetched.

    Why they cannot be fetched is told by `tell_problems`.
    """

    def __init__(self, notice: str) -> None:
        self._notice = notice
        self._report: list[bytes] = []
        self._has_started = False
        self._reader: threading.Thread | None = None

    def follow(self, process: subprocess.Popen[bytes]) -> None:
        """Read the standard error of the process, a pipe, until its end."""
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()

    def started(self) -> None:
        """The JVM has its jars: from now on all is passed on as it comes."""
        self._has_started = True

    def wait(self) -> None:
        """Return when all that an ended JVM has written is read."""
        if self._reader is not None:
            self._reader.join(_ENDS_S)

    def tell_problems(self) -> None:
        """Write what Ivy has reported of its problems, or all if it names none, once the JVM has ended."""
        self.wait()
        begins = [at for at, line in enumerate(self._report) if line.startswith(_PROBLEMS)]
        for line in self._report[begins[0] if begins else 0 :]:
            _write(line + b"\n")

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        rest = b""
        while process.stderr is not None and (data := os.read(process.stderr.fileno(), _READ_BYTES)):
            *lines, rest = [rest + data] if self._has_started else (rest + data).split(b"\n")
            for line in lines:
                self._take(line)
            if self._has_started:
                _write(rest)
                rest = b""
        _write(rest)

    def _take(self, line: bytes) -> None:
        is_of_ivy = _OF_IVY.match(line) if self._report else line.startswith(_BEGIN)
        if not is_of_ivy:
            _write(line + b"\n")
            return
        if line.startswith(_DOWNLOADING) and not any(one.startswith(_DOWNLOADING) for one in self._report):
            _write(f"{self._notice}\n".encode())
        self._report.append(line)


def _write(data: bytes) -> None:
    with suppress(OSError):  # nobody reads it: the JVM's pipe is emptied all the same
        while data:
            data = data[os.write(_STDERR, data) :]
