"""What is found in the records of a topic, and what a search takes."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from support.cluster.one_partition import OnePartition, batch

from raftwerk.cluster.client.client_errors import ClientError, NoLeaderAnswersError
from raftwerk.cluster.client.cluster_client import ClusterClient, ClusterView, PartitionView, TopicView, WaitsFor
from raftwerk.console.errors import RequestRefusedError
from raftwerk.console.records import records_page
from raftwerk.console.records.record_decoding import RecordDecoder
from raftwerk.console.records.records_page import LOOKED_THROUGH_MAX, SHOWN_MAX, RecordsWanted, read_records
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import ConnectionLostError
from raftwerk.wire.codec import Struct
from raftwerk.wire.compression import Compression


def found(cluster: ClusterClient, start: str, limit: int = SHOWN_MAX, text: str = "") -> tuple[list[int], int, bool]:
    """The offsets that are found, how many records were looked through, and whether there may be more."""
    wanted = RecordsWanted("t", None, start, limit, text)
    answer = asyncio.run(read_records(cluster, wanted, RecordDecoder()))
    return [one["offset"] for one in answer["records"]], answer["looked_through"], answer["is_cut"]


class UnreachableBefore(OnePartition):
    """A partition whose leader does not answer what lies before an offset."""

    unreachable = 0

    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: WaitsFor | None = None
    ) -> Struct:
        if api is ApiKey.FETCH and fields["topics"][0]["partitions"][0]["fetch_offset"] < self.unreachable:
            raise ConnectionLostError("it has died")
        return await super().request_node(node_id, api, version, fields, waits_for)


def test_a_text_is_found_in_whatever_case() -> None:
    values = [text.encode() for text in ("Ärger in Köln", "straße", "nothing", "ΣΊΣΥΦΟΣ")]
    cluster = OnePartition([batch(0, *values, b"\xff K\xd6LN", b"\xff\xc3\x84rger")])
    wanted = {
        "Ärger": [0, 5],
        "ÄRGER": [0, 5],
        "ärger": [0, 5],
        "KÖLN": [0],
        "STRASSE": [1],
        "σίσυφος": [3],
        "k": [0, 4],
    }
    for text, offsets in wanted.items():
        for start in ("earliest", "latest"):
            assert found(cluster, start, text=text) == (offsets, 6, False), (text, start)


def test_the_last_records_are_found_however_few_offsets_have_one() -> None:
    """Compaction leaves gaps: the search goes further and further back."""
    offsets = [0, 7, 100, 5_000, 5_001, 90_000]
    cluster = OnePartition([batch(one, b"%d" % one) for one in offsets])
    for limit in range(1, 7):
        assert found(cluster, "latest", limit)[0] == offsets[-limit:]
    assert found(cluster, "latest", 6) == (offsets, 6, False)
    assert found(cluster, "latest", 1) == ([90_000], 1, True)
    assert found(cluster, "latest", 2, "500")[0] == [5_000, 5_001]
    assert found(cluster, "earliest", 2) == ([0, 7], 2, True)


def test_a_text_is_looked_for_in_so_many_of_the_last_offsets() -> None:
    cluster = OnePartition([batch(0, b"x"), batch(2, b"x"), batch(LOOKED_THROUGH_MAX, b"y")])
    assert found(cluster, "latest", 9, "x") == ([2], 2, True)
    assert found(cluster, "earliest", 9, "x") == ([0, 2], 3, False)


@pytest.mark.parametrize("text", ["", "x"])
def test_a_search_of_the_end_ends_in_time_with_what_it_has_found(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_page, "LOOK_FOR_S", 0.3)
    cluster = UnreachableBefore([batch(one, b"x") for one in (0, 10, 20, 30)])
    cluster.unreachable = 11
    assert found(cluster, "latest", 4, text) == ([20, 30], 2, True)


def test_a_search_ends_in_time_while_it_decodes_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_page, "LOOK_FOR_S", 0.001)
    cluster = OnePartition([batch(one * 100, *[b"y"] * 100) for one in range(2_000)])
    for start in ("earliest", "latest"):
        offsets, looked_through, is_cut = found(cluster, start, text="x")
        assert (offsets, is_cut) == ([], True) and looked_through < LOOKED_THROUGH_MAX


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("limit", [1, SHOWN_MAX])
def test_a_search_takes_little_memory_however_far_records_are_compressed(start: str, limit: int) -> None:
    one = batch(0, *[b"x" * 1_000_000] * 8, codec=Compression.ZSTD)
    cluster = OnePartition([(8 * at).to_bytes(8, "big") + one[8:] for at in range(60)])  # 480 MB in some 50 KB
    tracemalloc.start()
    try:
        offsets, _, is_cut = found(cluster, start, limit, "x")
        peak_mib = tracemalloc.get_traced_memory()[1] >> 20
    finally:
        tracemalloc.stop()
    assert len(offsets) == min(limit, {"earliest": 34, "latest": 33}[start]) and is_cut
    assert peak_mib < 130


class PartlyLed(OnePartition):
    """A topic of two partitions, of which those of `led` have a leader."""

    led: tuple[int, ...] = (0,)

    async def metadata(self, topics: Iterable[str] | None = None, **_: Any) -> ClusterView:
        rows = tuple(PartitionView(one, 1 if one in self.led else -1, 0, (1,), (1,)) for one in range(2))
        return ClusterView("c", 1, (), (TopicView("t", None, False, rows),))


@pytest.mark.parametrize(("start", "offsets"), [("latest", [0, 1, 2]), ("earliest", [0, 1, 2]), ("offset:1", [1, 2])])
def test_a_partition_without_a_leader_does_not_hide_the_others(start: str, offsets: list[int]) -> None:
    cluster = PartlyLed([batch(0, b"a", b"b", b"c")])
    cluster.timeout_s = 0.2
    answer = asyncio.run(read_records(cluster, RecordsWanted("t", None, start, 20), RecordDecoder()))
    assert [one["offset"] for one in answer["records"]] == offsets
    assert answer["missing"] == ["t-1: no broker leads this partition, and their records are missing"]
    with pytest.raises(NoLeaderAnswersError, match="t-1: no broker leads this partition"):
        asyncio.run(read_records(cluster, RecordsWanted("t", 1, start, 20), RecordDecoder()))
    cluster.led = ()
    answer = asyncio.run(read_records(cluster, RecordsWanted("t", None, start, 20), RecordDecoder()))
    assert answer["records"] == [] and answer["missing"][0].startswith("t-0, t-1: no broker leads")


def test_an_offset_that_one_partition_has_is_enough_unless_a_partition_is_named() -> None:
    cluster = PartlyLed([batch(0, b"a", b"b", b"c")])
    with pytest.raises(ClientError, match="there is no offset 9"):
        asyncio.run(read_records(cluster, RecordsWanted("t", None, "offset:9", 20), RecordDecoder()))
    with pytest.raises(RequestRefusedError, match="from is earliest, latest"):
        asyncio.run(read_records(cluster, RecordsWanted("t", None, "soon", 20), RecordDecoder()))
