"""Picture: text of others is one safe line within it."""

from __future__ import annotations

import pytest

from jupyter_mntrain.show.picture import WIDTH_PX, Picture
from jupyter_mntrain.show.picture.theme import SCALE
from tests.hostile import HOSTILE, LONG, assert_safe, poisoned
from tests.show.picture.test_picture import boxes, words
from tests.standin.training import LOST_LINK, sample_job


@pytest.mark.parametrize("poison", [HOSTILE, LONG], ids=["hostile", "long"])
def test_text_of_others_is_one_safe_line_within_the_picture(poison):
    wrote = {"Who?": "I"}
    for state, started in (("failed", True), ("starting", False)):
        sample = poisoned(
            sample_job(
                {"wopr": 1, "muthur": 1},
                steps=4 if started else 0,
                state=state,
                started=started,
                problem=LOST_LINK if state == "failed" else None,
                wrote=wrote if started else {},
            ),
            poison,
        )
        picture = Picture(program="%mntrain")
        picture.draw(sample.series, sample.history.view, now_s=sample.now_s, note=poison)
        assert_safe(words(picture).replace("\n", " "))
        assert not any("\n" in text.get_text() for text in picture.painter.figure.texts)
        for text, box in boxes(picture):
            assert box.x1 <= WIDTH_PX * SCALE + 2, text
