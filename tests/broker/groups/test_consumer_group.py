from __future__ import annotations

from pathlib import Path

import pytest
from support.broker.consumer_transcript import run_transcript, transcripts
from support.transcripts import check_transcript


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    check_transcript(path, run_transcript)
