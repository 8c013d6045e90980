"""Step picture: every rank has its lane, what is drawn lies inside, and is named in the legend."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from jupyter_mntrain.model.records.plan import StepSpan, StepSpans
from jupyter_mntrain.show.picture.step_picture import (
    MOST_RANKS,
    SeenStep,
    StepPainter,
    step_picture,
)
from jupyter_mntrain.show.picture.theme import SCALE, THEMES, WIDTH_PX

LANE = (
    StepSpan(kind="F", begin_s=0.0, end_s=1.0, stage=0, microbatch=0),
    StepSpan(kind="send", begin_s=1.0, end_s=1.5, stage=0, microbatch=0),
    StepSpan(kind="wait", begin_s=1.0, end_s=2.0),
    StepSpan(kind="B", begin_s=2.0, end_s=4.0, stage=0, microbatch=0),
)
STEP = SeenStep("predicted", StepSpans(4.0, (LANE, LANE[:1])), ("r0 node1", "r1 node2"))


def words(painter: StepPainter) -> set[str]:
    return {text.get_text() for text in painter.canvas.figure.texts}


def painted(*steps: SeenStep) -> StepPainter:
    painter = StepPainter()
    painter.paint(steps)
    return painter


@pytest.mark.parametrize("theme", THEMES)
def test_it_is_as_wide_as_the_other_pictures(theme: str) -> None:
    image = Image.open(io.BytesIO(step_picture([STEP], theme=theme)))
    assert image.width == WIDTH_PX * SCALE


def test_ranks_kinds_and_duration_are_named() -> None:
    said = words(painted(STEP))
    assert {"r0 node1", "r1 node2"} <= said
    assert {"forward", "backward", "wait"} <= said
    assert not {"optimizer", "weight gradient"} & said, "there are none in this step"
    assert any("predicted" in word and "4.0" in word for word in said)


def test_two_steps_share_the_longer_ones_axis() -> None:
    longer = SeenStep("step 120", StepSpans(8.0, (LANE,)), ("r0 node1",))
    painter = painted(STEP, longer)
    figure = painter.canvas.figure
    edges = [
        path.get_extents()
        for boxes in figure.artists
        if hasattr(boxes, "get_paths")
        for path in boxes.get_paths()
    ]
    assert max(edge.x1 for edge in edges) <= WIDTH_PX
    assert max(edge.y1 for edge in edges) <= painter.canvas.height
    assert {"predicted, 4.0\N{NO-BREAK SPACE}s", "step 120, 8.0\N{NO-BREAK SPACE}s"} <= words(
        painter
    )


def test_of_many_ranks_it_says_how_many_are_not_drawn() -> None:
    many = MOST_RANKS + 3
    names = tuple(f"r{rank} node" for rank in range(many))
    said = words(painted(SeenStep("predicted", StepSpans(4.0, (LANE,) * many), names)))
    assert names[MOST_RANKS - 1] in said
    assert names[MOST_RANKS] not in said
    assert any("3" in word and "more" in word for word in said)


def test_nothing_is_drawn_of_a_step_that_takes_no_time() -> None:
    empty = SeenStep("predicted", StepSpans(0.0, ((),)), ("r0 node1",))
    assert "r0 node1" in words(painted(empty))


def test_whole_and_split_backward_passes_share_an_entry_of_the_legend() -> None:
    split = StepSpan(kind="I", begin_s=2.0, end_s=3.0, stage=1, microbatch=0)
    said = words(painted(SeenStep("predicted", StepSpans(4.0, (LANE, (split,))), ("r0", "r1"))))
    assert not {"backward", "input gradient"} & said
    assert any("backward" in word and "input gradient" in word for word in said)
