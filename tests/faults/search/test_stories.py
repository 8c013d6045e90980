"""Stories: what the file says can be played, and what is counted."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from tests.faults.search.play import Result
from tests.faults.search.results import table_of_asks
from tests.faults.search.scoring import Score
from tests.faults.search.stories import LAYOUT, Story, stories

STORIES = stories()


@pytest.mark.parametrize("story", STORIES, ids=lambda one: one.name)
def test_a_story_asks_for_what_can_be_read(story: Story) -> None:
    assert story.asks
    assert story.steps[-1].ask is not None, "what is done last is asked about"
    for ask in story.asks:
        assert ask.well != bool(ask.kinds)
        assert ask.well or any(kind in set(Kind) for kind in ask.kinds)
        if ask.rank is not None:
            assert LAYOUT.names[ask.rank] == ask.node
    for step in story.steps:
        assert step.phase in ("import", "join", "step", "save")
        assert not step.signal or step.rank is not None or step.node


def test_there_are_sixty_each_with_its_name() -> None:
    assert len({one.name for one in STORIES}) == len(STORIES) == 60


def result(score: Score, *asks: Score, trouble: str = "") -> Result:
    parameters = ({"asks": list(asks)},)
    how = {"truth": "", "verdict": (), "state": "", "known_after_s": None, "seconds": 1.0}
    of = {"seed": 1, "stratum": "rank", "case": "sequence: a", "is_hard": True}
    return Result(score=score, parameters=parameters, trouble=trouble, **of, **how)  # type: ignore[arg-type]


def test_the_table_counts_stories_and_first_lines() -> None:
    played = [
        result("right", "right", "right"),
        result("wrong", "right", "wrong"),
        result("silent", trouble="no lab"),
    ]
    *_, last = table_of_asks(played).splitlines()
    assert last == "| all | 2 | 1 (50 %) | 3 of 4 |"
