"""A program that uses franz-go, the client of Go, built once for all tests."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "go"
BUILD_TIMEOUT_S = 300


@cache
def franz_go() -> str:
    """The program's path. The test is skipped without Go, or where its modules cannot be had."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCE.iterdir()))).hexdigest()
    directory = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "raftwerk-tests"
    program = directory / f"franz-go-{digest[:16]}"
    if not program.exists():
        directory.mkdir(parents=True, exist_ok=True)
        made = directory / f"{program.name}.{os.getpid()}"
        try:
            built = subprocess.run(
                [go, "build", "-o", str(made), "."],
                cwd=SOURCE,
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            pytest.skip("franz-go was not built in time")
        if built.returncode:
            assert "main.go" not in built.stderr, built.stderr
            pytest.skip(f"franz-go cannot be built: {built.stderr[-300:]}")
        made.rename(program)
    return str(program)
