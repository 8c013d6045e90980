from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.metrics.downsampled.blocks import StepBlocks, row_of
from jupyter_mntrain.metrics.downsampled.rank_series import RankSeries
from jupyter_mntrain.metrics.page_entries import JOB_MIME, JobBundle
from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.notebook import output as output_module
from jupyter_mntrain.notebook.liveview import LAST_SAMPLES_S, MOST_OUTPUTS, BegunView, LiveView
from jupyter_mntrain.notebook.updater import INTERVAL_S
from tests.hostile import HOSTILE, assert_safe, poisoned, strings
from tests.standin.job_handle import StandInJob
from tests.standin.pipeline import TRAINED_ON
from tests.standin.screen import StillClock
from tests.standin.training import SCENES, Sample, sample_job
from tests.wording import says


class Page:
    """A display handle that keeps what it was given."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []

    def display(self, obj: Any, **kwargs: Any) -> None:
        self.frames.append(obj)

    def update(self, obj: Any, **kwargs: Any) -> None:
        self.frames.append(obj)

    @property
    def last(self) -> dict[str, Any]:
        return self.frames[-1]


@pytest.fixture
def job() -> StandInJob:
    return StandInJob(SCENES["starting"]())


def make(job: StandInJob) -> tuple[LiveView, Page, StillClock]:
    clock = StillClock()
    view, page = LiveView(job, clock), Page()
    view.attach(page)
    return view, page, clock


@pytest.fixture
def running() -> StandInJob:
    return StandInJob(SCENES["two"]())


def test_every_frame_has_numbers_a_picture_and_words(running):
    view, page, _ = make(running)
    assert not view.frame()
    assert set(page.last) == {JOB_MIME, "image/png", "text/plain"}
    assert "running" in page.last["text/plain"]
    assert says("Live in JupyterLab", page.last["text/plain"])
    assert "\x1b" not in page.last["text/plain"]


def test_the_first_output_has_the_job_so_that_the_page_can_go_on_without_the_kernel(job):
    _, page, _ = make(job)
    assert [one[JOB_MIME]["job"]["job_id"] for one in page.frames] == [job.id]


def test_a_job_is_named_before_it_starts_and_the_place_is_given_back(job):
    page, view = Page(), job.view()
    begun = BegunView(page, "lab", "shown below", StillClock())
    begun(view)
    bundle = msgspec.convert(page.last[JOB_MIME], JobBundle)
    assert (bundle.cluster, bundle.job.job_id, bundle.job.state) == ("lab", job.id, view.state)
    assert job.id in page.last["text/plain"]
    begun.clear()
    begun.clear()
    assert page.frames[1:] == [{"text/plain": "shown below"}]


def test_there_is_no_picture_before_there_is_something_to_draw(job):
    view, page, _ = make(job)
    assert not view.frame()
    assert set(page.last) == {JOB_MIME, "text/plain"}
    assert "starting" in page.last["text/plain"]
    assert view.interval_s < INTERVAL_S


def test_the_numbers_of_a_frame_are_a_whole_job(running):
    view, page, _ = make(running)
    view.frame()
    bundle = msgspec.convert(page.last[JOB_MIME], JobBundle)
    assert bundle.job.job_id == running.id
    assert bundle.series.since == 0
    assert len(bundle.series.ranks) == running.view().spec.world_size
    assert msgspec.json.decode(json.dumps(page.last[JOB_MIME]), type=JobBundle) == bundle


def test_the_end_is_urgent_and_says_nothing_of_redrawing(running):
    view, page, _ = make(running)
    view.frame()
    assert not view.is_urgent()
    running.become("succeeded")
    assert view.is_urgent()
    assert view.frame()
    assert "redrawn" not in page.last["text/plain"]


@pytest.mark.parametrize("scene", ["two", "starting"])
def test_every_frame_says_when_it_was_written_and_its_data_forecast_nothing(scene):
    view, page, clock = make(StandInJob(SCENES[scene]()))
    view.frame()
    bundle = msgspec.convert(page.last[JOB_MIME], JobBundle)
    assert bundle.saved_s == clock()
    assert bundle.job.numbers.remaining_s is None
    assert bundle.series.summary.remaining_s is None
    assert TRAINED_ON not in str(page.last), "notebooks are given to others"
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(clock()))
    assert at in page.last["text/plain"]
    assert "done at" not in page.last["text/plain"]


def test_a_long_job_whose_newest_lines_have_not_come_has_a_picture():
    sample = SCENES["two"]()
    ranks = {rank: in_blocks(series) for rank, series in sample.history.ranks.items()}
    view, page, _ = make(StandInJob(Sample(replace(sample.history, ranks=ranks), sample.now_s)))
    assert not view.frame()
    assert "image/png" in page.last
    assert "reports nothing" not in page.last["text/plain"]


def in_blocks(series: RankSeries) -> RankSeries:
    """Without single steps, as agents answer an early part of a long job."""
    rows = [row_of(step, index) for index, step in enumerate(series.steps)]
    return replace(series, steps=(), blocks=StepBlocks().extended(rows, len(rows)))


def test_the_same_frame_is_not_sent_twice(job):
    view, page, _ = make(job)
    for _ in range(4):
        view.frame()
    assert len(page.frames) == 1


def test_the_last_frame_lands_when_the_history_is_complete(job):
    view, page, _ = make(job)
    view.frame()
    job.become("succeeded")
    assert view.frame()
    assert view.done.is_set()
    assert "✓ succeeded" in page.last["text/plain"]


def test_a_silent_nodes_last_lines_are_waited_for_but_not_for_ever(job):
    view, page, clock = make(job)
    job.become("failed")
    history = job._sample.history
    object.__setattr__(history, "is_complete", False)
    job._sample = Sample(history, job._sample.now_s)
    assert not view.frame()
    clock.sleep(LAST_SAMPLES_S + 1)
    assert view.frame()
    assert "failed" in page.last["text/plain"]


def test_a_problem_is_said_once_and_then_forgotten(running):
    job = running
    view, page, clock = make(job)
    view.frame()
    whole, job.history = job.history, raising(NodeError("is on fire", node="wopr"))
    for _ in range(3):
        assert not view.frame()
    told = [frame for frame in page.frames if "wopr: is on fire" in frame["text/plain"]]
    assert len(told) == 1
    job.history = whole
    clock.sleep(9)
    view.frame()
    assert "is on fire" not in page.last["text/plain"]
    assert "image/png" in page.last


def test_a_bug_in_drawing_ends_with_the_job_and_never_raises(job):
    view, page, _ = make(job)
    job.history = raising(ZeroDivisionError("by zero"))
    assert not view.frame()
    job.become("failed")
    assert view.frame()
    assert view.done.is_set()
    assert "ZeroDivisionError: by zero" in page.last["text/plain"]


def test_a_second_output_shows_the_same_and_a_third_replaces_the_first(running):
    job = running
    view, first, _ = make(job)
    view.frame()
    others = [Page() for _ in range(MOST_OUTPUTS)]
    for page in others:
        view.attach(page)
        assert "image/png" in page.last
    assert "newer cell" in first.last["text/plain"]
    assert "image/png" not in first.last
    job.become("succeeded")
    view.frame()
    assert all("✓ succeeded" in page.last["text/plain"] for page in others)
    assert "newer cell" in first.last["text/plain"]


def test_publishing_again_sends_the_newest_frame(job):
    view, page, _ = make(job)
    view.frame()
    count = len(page.frames)
    view.publish()
    assert len(page.frames) == count + 1
    assert page.frames[-1] == page.frames[-2]


def raising(error: Exception):
    def do():
        raise error

    return do


def test_a_frame_has_only_text_that_is_safe_to_show():
    sample = poisoned(sample_job({"wopr": 1}, steps=2, wrote={"Who?": HOSTILE}))
    view, page, _ = make(StandInJob(sample))
    view.frame()
    assert_safe(page.last["text/plain"])
    for text in strings(page.last[JOB_MIME]):
        assert_safe(text)
    assert any("\\u202e" in text for text in strings(page.last[JOB_MIME]))


def test_a_frame_quotes_no_secret():
    sample = SCENES["failed"]()
    job = sample.history.view
    spec = msgspec.structs.replace(job.spec, environment={"SERVICE_KEY": "k3y-0f-a-s3rvice"})
    cause = "ValueError: k3y-0f-a-s3rvice was refused, as was password=hunter2"
    problem = Problem(kind=Kind.EXCEPTION, cause=cause, node=job.parts[0].node)
    said = msgspec.structs.replace(job, spec=spec, problem=problem, verdict=None)
    view, page, _ = make(StandInJob(replace(sample, history=replace(sample.history, view=said))))
    view.frame()
    shown = page.last["text/plain"] + json.dumps(page.last[JOB_MIME])
    assert "was refused" in shown
    assert "k3y-0f-a-s3rvice" not in shown
    assert "hunter2" not in shown


def test_an_output_in_a_notebook_is_safe_whatever_it_is_given(monkeypatch):
    given = []
    monkeypatch.setattr(output_module, "DisplayHandle", Page)
    monkeypatch.setattr(output_module, "display", lambda bundle, **_: given.append(bundle))
    place = output_module.NotebookOutput()
    for show in (place.display, place.update, output_module.show_bundle):
        show({"text/plain": HOSTILE, "text/html": HOSTILE, "image/png": "x"})
    for bundle in (*place._handle.frames, *given):
        assert_safe("".join(bundle.values()))
    assert len(given) + len(place._handle.frames) == 3
