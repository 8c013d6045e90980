"""Saves: a part remembers when its checkpoints were complete."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.warnings import job_warnings
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.lifecycle.events import SavedEvent
from jupyter_mntrain.model.lifecycle.saves import MOST_SAVED, requested_save
from jupyter_mntrain.model.lifecycle.state import apply
from jupyter_mntrain.model.records.checkpoint import SavedStep
from jupyter_mntrain.model.records.job import JobState, JobView, PartStatus
from tests.standin.jobs import view


def after(*events: SavedEvent) -> PartStatus:
    part = PartStatus(node_id=NodeId("n"), node="node1", state="running")
    for event in events:
        part = apply(part, event)
    return part


def test_each_checkpoint_is_remembered_once_with_its_first_time() -> None:
    told = after(SavedEvent(step=4, time_s=7.0), SavedEvent(step=4, time_s=8.0))
    assert told.saved == (SavedStep(step=4, time_s=7.0),)


def test_only_the_newest_are_remembered() -> None:
    many = after(*(SavedEvent(step=step, time_s=float(step)) for step in range(1, 99)))
    assert [one.step for one in many.saved] == list(range(99 - MOST_SAVED, 99))
    assert many.saved_step == 98


def test_one_without_a_time_counts_and_has_no_place_on_the_axis() -> None:
    assert (after(SavedEvent(step=4)).saved_step, after(SavedEvent(step=4)).saved) == (4, ())


def test_a_request_is_answered_by_what_was_saved_for_it() -> None:
    def job(state: JobState, *events: SavedEvent) -> JobView:
        part = after(*events)
        return msgspec.structs.replace(view(state, state), parts=(part, part))

    def answer(now: JobView, before: JobView) -> int | None:
        saved = requested_save(now, before)
        return None if saved is None or saved.problem else saved.step

    due, asked = SavedEvent(400, 1.0, is_scheduled=True), SavedEvent(403, 2.0)
    before = job("running", SavedEvent(200, 0.5))
    assert answer(job("running", due), before) is None
    assert answer(job("running", due, asked), before) == 403
    later = SavedEvent(500, 3.0, is_scheduled=True)
    assert answer(job("running", asked, later), before) == 403
    assert answer(job("running", asked), job("running", asked)) is None
    assert answer(job("canceled", due), before) == 400

    full = SavedEvent(404, 4.0, problem=Problem(Kind.DISK_FULL, "full", node="node1"))
    failed = requested_save(job("running", asked, full), job("running", asked))
    assert failed is not None
    assert failed.problem == msgspec.structs.replace(full.problem, time_s=4.0)
    assert failed.step == 404
    assert requested_save(job("running", full), job("running", full)) is None
    was_due = SavedEvent(405, 5.0, is_scheduled=True, problem=full.problem)
    assert requested_save(job("running", was_due), before) is None
    assert answer(job("running", full, SavedEvent(406, 6.0)), before) == 406


def test_a_save_that_failed_is_a_warning_until_one_is_complete() -> None:
    full = Problem(Kind.DISK_FULL, "full", node="node2", step=4)
    failed = after(SavedEvent(2, 1.0), SavedEvent(4, 2.0, problem=full))
    assert failed.saved_step == 2
    warned = msgspec.structs.replace(full, time_s=2.0)
    assert job_warnings((failed, failed), 2) == (warned,)
    assert job_warnings((apply(failed, SavedEvent(4, 3.0)),), 1) == ()
