"""``set``: what it asks a running job for, and what it says of it."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.cluster.launch.record_changes import SettingsChanged
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, SpecError
from jupyter_mntrain.model.records.job import ChangedValue, RunningChange
from tests.wording import says

JOB = "j-7f3a9c21"
TAKEN = RunningChange(
    "key", 1200, 5.0, by="ada@lab", values=(ChangedValue("train.steps", "2000", "5000"),)
)


def test_a_change_is_told_with_its_step_and_what_follows(do, cluster, text, as_json):
    (job,) = cluster._jobs.values()
    job.changed = SettingsChanged(TAKEN, ("learning rate of step 1,201: 0.1 → 0.2",))
    outcome = do("set", JOB, "train.steps=5000", "optimizer.learning_rate=1e-4")
    assert job.calls == [("set", ["train.steps=5000", "optimizer.learning_rate=1e-4"])]
    said = text(outcome.renderable)
    assert "train.steps 2000 → 5000" in said
    assert "1,200" in said
    assert "0.1 → 0.2" in said
    assert outcome.exit_code == 0
    data = as_json(outcome)
    assert (data["job_id"], data["change"]["step"]) == (job.id, 1200)


def test_a_change_that_nobody_has_taken_yet_is_no_success(do, cluster, text):
    (job,) = cluster._jobs.values()
    job.changed = SettingsChanged()
    outcome = do("set", JOB, "train.steps=5000")
    assert outcome.exit_code == 1
    assert says("have not applied it", text(outcome.renderable))
    job.become("failed")
    assert says("failed before", text(do("set", JOB, "train.steps=5000").renderable))


def test_a_job_or_a_setting_that_was_forgotten_is_named(do, cluster):
    (job,) = cluster._jobs.values()
    with pytest.raises(SpecError) as caught:
        do("set", "train.steps=5000")
    assert job.id in caught.value.fix
    with pytest.raises(SpecError) as caught:
        do("set", JOB)
    assert "optimizer.learning_rate" in caught.value.fix
    assert job.calls == []
    job.become("succeeded")
    with pytest.raises(JobNotFoundError):
        do("set", "train.steps=5000")
    with pytest.raises(MntrainError):
        do("set")


def test_status_says_what_was_changed_and_by_whom(do, cluster, text):
    (job,) = cluster._jobs.values()
    view = job.view()
    parts = tuple(msgspec.structs.replace(part, changes=(TAKEN,)) for part in view.parts)
    job.change_view(msgspec.structs.replace(view, parts=parts))
    said = text(do("status", JOB).renderable)
    assert said.count("train.steps 2000 → 5000") == 1
    assert "ada@lab" in said
