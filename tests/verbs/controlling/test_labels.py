"""``rename``, ``note`` and ``rm``: what they change, and what they say first."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.errors import MntrainError, RefusedError

JOB = "j-7f3a9c21"


def test_a_job_has_another_name_and_a_note_and_its_first_name_comes_back(do, cluster, as_json):
    (job, *_) = cluster._jobs.values()
    first = job.view().spec.name
    assert as_json(do("rename", JOB, "best so far")) == {
        "job_id": JOB, "name": "best so far", "note": "", "silent": [],
    }  # fmt: skip
    assert as_json(do("note", JOB, "lr 3e-4"))["note"] == "lr 3e-4"
    assert (job.view().spec.name, job.view().label.note) == ("best so far", "lr 3e-4")
    assert first != "best so far"


@pytest.mark.parametrize("verb", ["rename", "note"])
def test_what_cannot_be_shown_or_is_too_long_is_refused(do, cluster, verb):
    (job, *_) = cluster._jobs.values()
    before = job.view()
    for text in ("x" * 100_000, "\x1b[2J"):
        with pytest.raises(MntrainError):
            do(verb, JOB, text)
    assert job.view() == before


def test_nodes_that_do_not_know_it_yet_are_named(do, cluster, text, as_json):
    (job, *_) = cluster._jobs.values()
    job.silent = ("muthur",)
    outcome = do("note", JOB, "later")
    assert as_json(outcome)["silent"] == ["muthur"]
    assert "muthur" in text(outcome.renderable)


def test_nothing_is_deleted_without_yes(do, cluster, as_json):
    (job, *_) = cluster._jobs.values()
    job.become("succeeded")
    planned = as_json(do("rm", JOB))
    assert (planned["is_done"], [one["job_id"] for one in planned["removals"]]) == (False, [JOB])
    assert planned["removals"][0]["size_bytes"] == 2 * (3 << 20)
    assert ("remove", False) not in job.calls
    assert as_json(do("rm", JOB, "--yes"))["is_done"]
    assert job.calls[-1] == ("remove", False)
    do("rm", JOB, "--yes", "--checkpoints")
    assert job.calls[-1] == ("remove", True)


def test_a_live_job_is_not_deleted(do, cluster):
    (job, *_) = cluster._jobs.values()
    with pytest.raises(RefusedError):
        do("rm", JOB, "--yes")
    assert job.calls == []
