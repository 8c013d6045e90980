"""Cases played on a real lab: the short form of ``python -m tests.faults.search``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.faults.bench import Bench
from tests.faults.search.case import Case
from tests.faults.search.grammar import draw
from tests.faults.search.play import play, style_of
from tests.faults.search.stage import Stage
from tests.netlab import missing
from tests.searches import runs_all

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=f"no lab: {missing()}"),
    pytest.mark.skipif(
        not runs_all(), reason="the long form plays hundreds: set MNTRAIN_ALL_CASES"
    ),
]

STYLE = "ring"
"""Of both cases, so that the second one has the job of the first."""

PATIENCE = 3.0
"""Another lab uses the same cores."""


@pytest.fixture
def stage(bench: Bench, mntrain: str) -> Iterator[Stage]:
    made = Stage(mntrain, PATIENCE, bench)
    made.end_job()
    yield made
    made.end_job()
    made.close()


def drawn(mechanism: str) -> Case:
    """The first case of one mechanism alone, between two steps of two ranks."""
    cases = (draw(seed) for seed in itertools.count(1))
    return next(
        case
        for case in cases
        if case.mechanisms == (mechanism,)
        and case.moment == "steps"
        and case.layout.names == ("node1", "node2")
        and case.layout.world_size == 2
        and style_of(case) == STYLE
    )


def test_cases_are_played_one_after_the_other_and_judged(stage: Stage) -> None:
    waits = play(stage, drawn("an interface set down"))
    assert (waits.score, waits.trouble, waits.state) == ("right", "", "running"), waits
    job = stage.bench.job
    assert job, "the job runs on, for the next case"
    ends = play(stage, drawn("a signal to torchrun"))
    assert (ends.score, ends.trouble, ends.state) == ("right", "", "failed"), ends
    assert ends.known_after_s is not None
    assert stage.rebuilds == 0
