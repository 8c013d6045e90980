"""Saves: a part remembers when its checkpoints were complete."""

from __future__ import annotations

import msgspec

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

    due, asked = SavedEvent(400, 1.0, is_scheduled=True), SavedEvent(403, 2.0)
    assert requested_save(job("running", due), 200) is None
    assert requested_save(job("running", due, asked), 200) == 403
    later = SavedEvent(500, 3.0, is_scheduled=True)
    assert requested_save(job("running", asked, later), 200) == 403
    assert requested_save(job("running", asked), 403) is None
    assert requested_save(job("canceled", due), 200) == 400
