"""Job bar of the panel: how a job is stopped from there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.notebook.panel.widgets import blocked
from tests.notebook.panel.opened import Open, until
from tests.wording import says


@pytest.fixture
def page(open_one) -> Open:
    """A panel whose job runs."""
    page = open_one()
    page.cluster.to_launch.become("running")
    page.click(page.view.launch_bar.launch)
    until(lambda: page.jobs == [page.cluster.to_launch])
    until(lambda: not blocked(page.view.job_bar.stop))
    return page


def change_parts(page: Open, **fields: Any) -> None:
    (job,) = page.jobs
    view = job.view()
    parts = tuple(msgspec.structs.replace(part, **fields) for part in view.parts)
    job.change_view(msgspec.structs.replace(view, parts=parts))
    page.cluster.become(*page.cluster.nodes())


def is_shown(button: Any) -> bool:
    return button.layout.display is None


@pytest.mark.wording  # it waits for words
def test_a_job_that_can_save_may_be_stopped_after_a_save(page: Open) -> None:
    bar = page.view.job_bar
    change_parts(page, saves=True, saved_step=1400)
    page.click(bar.stop)
    until(lambda: is_shown(bar.save))
    assert says("newest checkpoint is of step 1,400", bar.line.value)
    assert bar.stop_now.description == "Stop without saving"
    shown = [button.description for button in bar.root.children[0].children[1:] if is_shown(button)]
    assert shown == ["Keep it running", "Save, then stop", "Stop without saving"]
    page.click(bar.save)
    until(lambda: ("save", True) in page.jobs[0].calls)
    until(lambda: says("saves when its step has ended", bar.line.value))
    assert not any(name == "stop" for name, _ in page.jobs[0].calls)
    until(lambda: not blocked(page.view.launch_bar.launch))
    page.click(bar.stop)
    until(lambda: is_shown(bar.stop_now) and not is_shown(bar.save))  # it was asked already
    page.click(bar.keep)
    change_parts(page, saved_step=1403)
    page.jobs[0].become("canceled")
    page.cluster.become(*page.cluster.nodes())
    until(lambda: says("Step 1,403 was saved", bar.line.value))


@pytest.mark.wording
def test_a_job_that_ended_before_it_had_saved_says_so(page: Open) -> None:
    bar = page.view.job_bar
    change_parts(page, saves=True)
    page.click(bar.stop)
    until(lambda: is_shown(bar.save))
    page.click(bar.save)
    until(lambda: says("saves when its step has ended", bar.line.value))
    page.jobs[0].become("failed")
    page.cluster.become(*page.cluster.nodes())
    until(lambda: says("ended before it had saved", bar.line.value))


def test_a_job_that_cannot_save_is_offered_none(page: Open) -> None:
    bar = page.view.job_bar
    page.click(bar.stop)
    until(lambda: is_shown(bar.stop_now))
    assert not is_shown(bar.save)
    assert (bar.stop_now.description, is_shown(bar.keep)) == ("Stop it", True)


def test_an_open_question_offers_a_save_as_soon_as_the_job_can(page: Open) -> None:
    bar = page.view.job_bar
    page.click(bar.stop)
    until(lambda: is_shown(bar.stop_now))
    assert not is_shown(bar.save)
    change_parts(page, saves=True)
    until(lambda: is_shown(bar.save))
    assert bar.stop_now.description == "Stop without saving"


def test_an_open_question_about_a_job_that_ends_is_taken_back(page: Open) -> None:
    bar = page.view.job_bar
    change_parts(page, saves=True)
    page.click(bar.stop)
    until(lambda: is_shown(bar.save))
    page.jobs[0].become("succeeded")
    page.cluster.become(*page.cluster.nodes())
    until(lambda: not is_shown(bar.stop_now))
    assert bar.line.value.endswith("succeeded.")  # nothing is asked
    assert not any(map(is_shown, (bar.keep, bar.save, bar.stop)))
    page.jobs[0].become("running")  # as the next job does
    page.cluster.become(*page.cluster.nodes())
    until(lambda: is_shown(bar.stop))
    assert not is_shown(bar.stop_now)


@pytest.mark.wording
def test_a_refused_save_is_said_and_the_job_goes_on(page: Open) -> None:
    bar = page.view.job_bar
    change_parts(page, saves=True)
    page.jobs[0].refuses_save = RefusedError("the attempt is over", fix="look", node="wopr")
    page.click(bar.stop)
    until(lambda: is_shown(bar.save))
    page.click(bar.save)
    until(lambda: "the attempt is over" in page.why)
    until(lambda: is_shown(bar.stop))
    assert not says("saves when", bar.line.value)
