from __future__ import annotations

import errno
import mmap

import pytest

from raftwerk.runtime.mapped_memory import scratch_memory


@pytest.mark.parametrize("size", [0, 1, 1_000_000, 20_000_001])
def test_scratch_memory(size: int) -> None:
    memory = scratch_memory(size)
    assert bytes(memory) == bytes(size)
    if size:
        memory[-1] = 7
        assert memory[-1] == 7


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="of Linux")
def test_a_kernel_without_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 99)  # refused as what is unknown to the kernel
    assert bytes(scratch_memory(20_000_000)) == bytes(20_000_000)


def test_a_system_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(MemoryError, match=r"no memory for 20000001 bytes: .*Cannot allocate memory"):
        scratch_memory(20_000_001)
