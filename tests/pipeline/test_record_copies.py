"""What a mirror counts: the records that this run copied, apart from those that an interrupted one had copied."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.jobs.mirror import summary
from raftwerk.pipeline.jobs.record_copier import RecordCopier, last_copied
from raftwerk.pipeline.topics import Topics

pa = pytest.importorskip("pyarrow", reason="no pyarrow: copies are NOT tested")


def test_records_that_are_there_already_are_told_apart(bootstrap: str, topic: str) -> None:
    """A task copies three records; its repetition finds them and copies two more."""
    Topics(bootstrap, (topic,)).create(1, {})
    copier = RecordCopier(bootstrap, {"source": topic})

    def ranges(offsets: range) -> list[tuple[int, int, int, bool]]:
        rows = [
            {
                "topic": "source",
                "partition": 0,
                "offset": offset,
                "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
                "key": b"k",
                "value": b"v",
                "headers": None,
            }
            for offset in offsets
        ]
        (batch,) = copier.copy(iter([pa.RecordBatch.from_pylist(rows)]))
        return [(row["source"], row["target"], row["length"], row["found"]) for row in batch.to_pylist()]

    assert ranges(range(7, 10)) == [(7, 0, 3, False)]
    assert ranges(range(7, 12)) == [(10, 3, 2, False), (7, 0, 3, True)]
    assert ranges(range(10, 12)) == [(10, 3, 2, True)]


def test_a_copy_that_cannot_be_read_is_named(bootstrap: str, topic: str) -> None:
    with pytest.raises(PipelineError, match=f"the end of the copy, {topic}-0 at .* could not be read: .* doctor -b"):
        last_copied(bootstrap, topic, 0)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({}, {"rows": 7, "rows_found": 0}, "7 records copied"),
        ({}, {"rows": 7, "rows_found": 7}, "0 records copied (7 were there already, 7 in all)"),
        ({}, {"rows": 7, "rows_found": 1}, "6 records copied (1 was there already, 7 in all)"),
        ({"rows": 7}, {"rows": 8, "rows_found": 0}, "1 record copied (8 in all)"),
        ({"rows": 7, "rows_found": 3}, {"rows": 7, "rows_found": 3}, "0 records copied (7 in all)"),
        ({}, {}, "0 records copied"),
    ],
)
def test_a_mirror_tells_what_it_copied_in_this_run(before: dict[str, int], after: dict[str, int], said: str) -> None:
    result, sentence = summary(before, after, 0)
    assert sentence == f"{said}, 0 offsets of groups moved"
    assert result["rows_of_this_run"] == int(said.split()[0])
    assert result["rows"] == after.get("rows", 0)
