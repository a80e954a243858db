"""Names of directories inside a log directory.

A partition's directory is `<topic>-<partition>`. A log on its way to another log directory has the ending `-future`
(KIP-113), a deleted one `-delete`, and one that belongs to no partition of this node `-stray` (KIP-866); these three
have a random id before the ending, so that a topic of the same name can be made again.
"""

from __future__ import annotations

import random

from ..wire.types import TopicPartition

FUTURE_SUFFIX, DELETED_SUFFIX, STRAY_SUFFIX = "-future", "-delete", "-stray"
_NAME_LENGTH_MAX = 255


def parse_dir_name(name: str) -> TopicPartition | None:
    """The partition whose directory has this name, None for any other directory."""
    topic, dash, partition = name.rpartition("-")
    if not topic or not dash or not partition.isdecimal() or str(int(partition)) != partition:
        return None
    return TopicPartition(topic, int(partition))


def is_partition_dir(name: str) -> bool:
    """Whether a directory of this name holds a partition."""
    return parse_dir_name(name) is not None


def parse_future_name(name: str) -> TopicPartition | None:
    """The partition whose future log has a directory of this name, None for any other directory."""
    original, dot, _ = name.removesuffix(FUTURE_SUFFIX).rpartition(".")
    return parse_dir_name(original) if dot and name.endswith(FUTURE_SUFFIX) else None


def future_name(tp: TopicPartition, rng: random.Random) -> str:
    """A new name for the partition's future log; longer than a file system allows if the topic's name is long."""
    return f"{tp}.{rng.getrandbits(128):032x}{FUTURE_SUFFIX}"


def retired_name(tp: TopicPartition, rng: random.Random, suffix: str) -> str:
    """A new name for the partition's deleted or stray directory; a long topic name is cut."""
    ending = f"-{tp.partition}.{rng.getrandbits(128):032x}{suffix}"
    return tp.topic[: _NAME_LENGTH_MAX - len(ending)] + ending
