"""The predicted throughput in the picture of a job."""

from __future__ import annotations

from jupyter_mntrain.show.picture import Picture
from tests.show.picture.test_picture import words
from tests.standin.plans import plan_of
from tests.standin.training import sample_job


def test_the_predicted_throughput_is_a_line_unless_it_is_far_off() -> None:
    for step_s, is_drawn in ((1.3, True), (0.8, True), (0.01, False)):
        sample = sample_job({"wopr": 1, "muthur": 1}, plan=plan_of(step_s))
        picture = Picture(program="x")
        picture.draw(sample.series, sample.history.view, now_s=sample.now_s)
        assert ("predicted" in words(picture)) == is_drawn
