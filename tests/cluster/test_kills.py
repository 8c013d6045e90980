"""A run that is killed twice at random moments has the losses of one that was never broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.kills import trial
from tests.searches import runs_all


@pytest.mark.slow
@pytest.mark.skipif(not runs_all(), reason="test_resume.py kills as much: set MNTRAIN_ALL_CASES")
def test_two_kills_in_a_row_change_no_loss(tmp_path: Path) -> None:
    with trial(tmp_path) as made:
        told = made.run(3)
    assert told.problem is None, told
    assert len(told.story) == 4
