"""Tables on disk: what was written is read again, and memory stays bounded."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.chaos.histories import SECOND, ack, final_end, header, invoke, poll

from raftwerk.chaos.live.checker.checker import check_lines
from raftwerk.chaos.live.checker.paged_table import PAGE_ROWS, PagedTable

Write = tuple[int, int, int, int]
writes = st.tuples(
    st.integers(0, 2), st.integers(0, 5 * PAGE_ROWS), st.integers(0, 2), st.integers(-(2**63), 2**63 - 1)
)


@settings(max_examples=60)
@given(st.lists(writes, max_size=60), st.integers(1, 3))
def test_it_is_a_big_dictionary(tmp_path_factory: object, operations: list[Write], pages: int) -> None:
    table = PagedTable(tmp_path_factory.mktemp("t"), 3, pages_in_memory=pages)  # type: ignore[attr-defined]
    expected: dict[tuple[int, int, int], int] = {}
    for group, index, column, value in operations:
        page, at = table.row(group, index)
        page[at + column] = value
        expected[group, index, column] = value
        assert table.pages_in_memory <= pages
    for (group, index, column), value in expected.items():
        page, at = table.row(group, index)
        assert page[at + column] == value
    assert table.groups == sorted({group for group, *_ in operations})
    for group in table.groups:
        assert table.size(group) == 1 + max(index for other, index, *_ in operations if other == group)
    table.close()


def test_closing_leaves_no_file(tmp_path: Path) -> None:
    table = PagedTable(str(tmp_path), 1, pages_in_memory=1)
    for index in range(0, 10 * PAGE_ROWS, PAGE_ROWS):
        table.row(0, index)
    assert os.listdir(tmp_path)
    table.close()
    assert not os.listdir(tmp_path)


def test_a_loss_is_found_among_many_pages() -> None:
    """Two producers with more records than the pages in memory hold; one record of 40,000 is not read."""
    count, lost = 20_000, 12_345

    def lines() -> object:
        for producer in (0, 1):
            yield header(producer)
            for number in range(count):
                offset = number * 2 + producer
                yield ack(number, offset, producer=producer, key=number % 7, start=number)
        rows = [(o, o // 2, o // 2 % 7, o % 2) for o in range(count * 2) if o != lost * 2]
        for at in range(0, len(rows), 1000):
            yield poll(*rows[at : at + 1000], process="final", end=SECOND, final=True) | {"end": 10**15}
        yield final_end(count * 2)

    verdict = check_lines(lines()).verdict  # type: ignore[arg-type]
    assert {kind: n for kind, n in verdict.findings.counts.items() if n} == {"lost": 1}
    assert f"record 0:{lost} " in verdict.findings.evidence["lost"][0].text


def test_evidence_is_bounded_and_counts_are_not() -> None:
    lines = [final_end(0), *(invoke(number) for number in range(100))]
    findings = check_lines(lines, evidence_max=3).verdict.findings
    assert findings.counts["unanswered"] == 100
    assert len(findings.evidence["unanswered"]) == 3
