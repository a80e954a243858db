"""Reasons of the operating system in words."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from raftwerk.runtime.os_errors import os_reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "no space left on device"),
        (OSError(errno.ENOSPC, "No space left on device", "/data/1"), "/data/1: no space left on device"),
        (OSError(errno.EIO, "Input/output error", b"/data/1"), "/data/1: input/output error"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 111] too"), "connection refused"),
        (ConnectionResetError("closed by the peer"), "closed by the peer"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_reasons(error: OSError, reason: str) -> None:
    assert os_reason(error) == reason


def test_a_real_one(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError) as raised:
        tmp_path.mkdir()
    assert os_reason(raised.value) == f"{tmp_path}: file exists"
