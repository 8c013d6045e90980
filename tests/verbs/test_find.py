"""Find: which job is meant where none is named."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import TRAINER, Attempt, JobSpec, JobView
from jupyter_mntrain.verbs.verb import newest

TRAINS = ("-m", TRAINER, "recipe.toml")
ANSWERS = ("-m", "jupyter_mntrain.train.generate")
ATTEMPT = Attempt(
    number=1, placements=(), master_address="10.0.0.1", master_port=1, submitted_s=0.0
)


@pytest.mark.parametrize(
    ("entries", "meant"),
    [
        ([TRAINS, ("train.py",)], 0),
        ([ANSWERS, TRAINS], 1),
        ([ANSWERS, ANSWERS, ("train.py",)], 2),
        ([("-m", "pkg.train"), TRAINS], 0),
        ([ANSWERS], 0),
    ],
)
def test_what_runs_beside_a_job_is_not_the_newest(
    entries: list[tuple[str, ...]], meant: int
) -> None:
    specs = [JobSpec(entry=entry, participants=()) for entry in entries]
    jobs = [JobView(JobId(f"j{n}"), spec, ATTEMPT, "running", ()) for n, spec in enumerate(specs)]
    assert newest(jobs) is jobs[meant]
