"""Runs `protoc`, Protobuf's own compiler, on a schema: it parses, resolves names and checks as all others do.

It is a process of its own, so that a hostile text costs a limited time and cannot end the registry.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import invalid_schema
from .well_known import CONFLUENT, well_known_descriptors, well_known_names

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

ROOT = "schema.proto"
"""The name that a schema itself has for the compiler."""
_TIMEOUT_S = 10.0
_SHOWN = 3
_MISSING = ": File not found."
_SHOWN_CHARACTERS = 300
_NAME_MAX = 200


@cache
def protoc() -> str | None:
    """The path of the compiler: the one that was installed with the registry, or the first one in PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "protoc"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("protoc")


def compile_proto(text: str, imports: Mapping[str, str]) -> FileDescriptorSet:
    """The descriptors of a schema, which is the last one, and before it of all that it imports.

    `imports` has the texts of its references by their names. Raises `RegistryError` 42201.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    root = ROOT
    while root in imports:
        root = f"_{root}"
    with tempfile.TemporaryDirectory(prefix="raftwerk-protoc-") as directory:
        files, known, made = (Path(directory, name) for name in ("files", "known.pb", "made.pb"))
        for name, held in {**imports, **CONFLUENT, root: text}.items():
            if name not in well_known_names() or name in CONFLUENT:
                _write(files, name, held)
        known.write_bytes(well_known_descriptors())
        _run(files, root, ["--include_imports", f"--descriptor_set_in={known}", f"--descriptor_set_out={made}"])
        return FileDescriptorSet.FromString(made.read_bytes())


def _write(directory: Path, name: str, text: str) -> None:
    parts = name.split("/")
    is_plain = name.isprintable() and "\\" not in name and len(name) <= _NAME_MAX
    if not is_plain or any(part in ("", ".", "..") for part in parts):
        raise invalid_schema(f"a reference has the name {name[:_NAME_MAX]!r}, which no file can be imported by")
    path = directory.joinpath(*parts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    except (OSError, UnicodeEncodeError) as error:
        raise invalid_schema(f"{name} cannot be written for the compiler: {error.__class__.__name__}") from None


def _run(directory: Path, root: str, options: list[str]) -> None:
    program = protoc()
    if program is None:
        raise invalid_schema("there is no protoc to compile it: pip install 'raftwerk[registry]'")
    command = [program, "--proto_path=.", *options, root]
    try:
        ended = subprocess.run(command, capture_output=True, cwd=directory, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise invalid_schema(f"it takes more than {_TIMEOUT_S:g} s to compile") from None
    if ended.returncode < 0:
        raise invalid_schema("it is nested too deeply, or too large to compile")
    if ended.returncode != 0:
        raise invalid_schema(_told(ended.stderr.decode("utf-8", "replace"), root))


def _told(text: str, root: str) -> str:
    """The first errors of the compiler, without the name that only it knows."""
    lines = [line for line in text.splitlines() if line.strip() and "warning:" not in line]
    lines.sort(key=lambda line: "was not found or had errors" in line)  # which follows from another
    shown = []
    for line in lines[:_SHOWN]:
        if line.endswith(_MISSING):
            shown.append(f"there is no reference for its import {line.removesuffix(_MISSING)}"[:_SHOWN_CHARACTERS])
            continue
        place, _, what = line.removeprefix(f"{root}:").partition(": ")
        row, _, column = place.partition(":")
        is_here = line.startswith(f"{root}:") and row.isdigit()
        shown.append((f"line {row}, column {column}: {what}" if is_here else line)[:_SHOWN_CHARACTERS])
    return "; ".join(shown) or "the compiler refuses it"
