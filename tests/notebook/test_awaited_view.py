"""What a job waits for, in the output in which the job is then shown."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from jupyter_mntrain.metrics.page_entries import JOB_MIME
from jupyter_mntrain.model.errors import MntrainError, NodeError, RefusedError
from jupyter_mntrain.notebook.screen import NotebookScreen
from jupyter_mntrain.notebook.updater import View
from jupyter_mntrain.show.screen import Awaited
from tests.notebook.test_liveview import Page
from tests.standin.job_handle import StandInJob
from tests.standin.training import SCENES
from tests.waiting import until


class Views(list[View]):
    """In the updater's place: views are drawn when a test says so."""

    add = list.append


@pytest.fixture
def views() -> Views:
    return Views()


@pytest.fixture
def pages() -> list[Page]:
    return []


@pytest.fixture
def begin(views: Views, pages: list[Page]) -> Callable[..., View]:
    """Has a screen await a job; each look tells the next of what is given."""

    def begun(*seen: Awaited | MntrainError) -> View:
        def new_page() -> Page:
            pages.append(Page())
            return pages[-1]

        updater: Any = views
        screen = NotebookScreen(updater, print, new_page)
        told = iter(seen)

        def look() -> Awaited:
            now = next(told)
            if isinstance(now, MntrainError):
                raise now
            return now

        screen.await_job(Awaited("in the queue"), look)
        return views[0]

    return begun


def looked(view: View) -> bool:
    """Have it look, and draw what it has seen. Returns whether that was its last frame."""
    assert not view.frame()
    until(view.is_urgent, "it to have looked")
    return view.frame()


def test_the_job_takes_the_place_of_what_it_waited_for(
    begin: Callable[..., View], views: Views, pages: list[Page]
) -> None:
    job = StandInJob(SCENES["two"]())
    view = begin(
        Awaited("in the queue"),
        NodeError("no answer"),
        Awaited("its agents start"),
        Awaited(job=job),  # type: ignore[arg-type]
    )
    (page,) = pages
    assert [frame["text/plain"] for frame in page.frames] == ["in the queue"]
    assert not looked(view)
    assert len(page.frames) == 1
    assert not looked(view)
    assert "no answer" in page.last["text/plain"]
    assert not looked(view)
    assert page.last["text/plain"] == "its agents start"
    assert looked(view)
    assert job.id in page.last["text/plain"]
    views[1].frame()
    assert JOB_MIME in page.last
    assert len(pages) == 1


def test_what_will_never_start_is_said_and_no_longer_looked_at(
    begin: Callable[..., View], pages: list[Page]
) -> None:
    view = begin(RefusedError("the partition has 3 nodes"))
    assert looked(view)
    assert "the partition has 3 nodes" in pages[0].last["text/plain"]


def test_a_scheduler_that_is_slow_keeps_no_other_view_from_being_drawn(
    views: Views, pages: list[Page]
) -> None:
    def new_page() -> Page:
        pages.append(Page())
        return pages[-1]

    answers = Event()

    def look() -> Awaited:
        answers.wait(2)
        return Awaited("granted")

    updater: Any = views
    NotebookScreen(updater, print, new_page).await_job(Awaited("in the queue"), look)
    (view,) = views
    for _ in range(3):
        assert not view.frame()
        assert not view.is_urgent()
    assert len(pages[0].frames) == 1
    answers.set()
    until(view.is_urgent, "it to have looked")
    assert not view.frame()
    assert pages[0].last["text/plain"] == "granted"
