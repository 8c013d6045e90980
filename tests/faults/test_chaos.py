"""Random faults: the short form of ``python -m tests.faults.chaos``."""

from __future__ import annotations

import pytest

from tests.faults.chaos import search

SEEDS = (12, 422)
"""Between them they kill ranks, torchrun, a keeper and an agent, freeze ranks and stop the job."""


@pytest.mark.slow
def test_whatever_happens_a_job_ends_as_it_had_to_and_leaves_nothing() -> None:
    assert search(SEEDS) == {}
