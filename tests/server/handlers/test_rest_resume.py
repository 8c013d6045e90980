"""REST: what a run can go on from, going on, and its checkpoints."""

from __future__ import annotations

from typing import Any

import pytest
import tomli_w

from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.checkpoint import HeldCheckpoint, Manifest, NodeCheckpoints
from jupyter_mntrain.model.records.job import TRAINER
from tests.cluster.conftest import wait_for
from tests.server.conftest import Served, refused

# Each starts Jupyter servers of its own.
pytestmark = pytest.mark.slow

RECIPE = '[model]\npreset = "llama-tiny"\n[train]\nsteps = 1000\n'


def ended_run(served: Served, *steps: int) -> JobId:
    """A run of a recipe on both nodes that has ended with these checkpoints."""
    file: dict[str, Any] = {
        "mntrain_job": 1,
        "entry": ["-m", TRAINER, "recipe.toml"],
        "participants": [{"node": "node1"}, {"node": "node2"}],
        "files": {"recipe.toml": RECIPE},
    }
    launched = served.server.ask("POST", "/jobs", {"spec": tomli_w.dumps(file), "yes": True})
    assert launched.status_code == 201, launched.text
    job_id = JobId(launched.json()["job"]["job_id"])
    for rank, agent in enumerate(served.agents):
        held = tuple(HeldCheckpoint(Manifest(step, 1, (10, 20)), (rank,), 5.0) for step in steps)
        kept = NodeCheckpoints(run=job_id, directory="/c", checkpoints=held)
        served.do(agent.checkpoints.__setitem__, job_id, kept)
    finish(served, job_id)
    return job_id


def finish(served: Served, job_id: JobId) -> None:
    for agent in served.agents:
        served.do(agent.finish, job_id)
    wait_for(lambda: served.server.get(f"/jobs/{job_id}")["state"] == "succeeded")


def test_a_run_is_resumed_where_the_person_saw_it_would_be(served: Served) -> None:
    job_id = ended_run(served, 200, 400)
    path = f"/jobs/{job_id}/resume"
    offer = served.server.get(path)
    assert (offer["step"], offer.get("obstacle"), offer["steps"]) == (400, None, 1000)
    assert [one["step"] for one in offer["checkpoints"]["checkpoints"]] == [400, 200]
    stale = served.server.ask("POST", path, {"expected_step": 200})
    refused(stale, 409, "no-checkpoint")

    resumed = served.server.ask("POST", path, {"expected_step": 400, "steps": 2000})
    assert resumed.status_code == 201, resumed.text
    newer = JobId(resumed.json()["job"]["job_id"])
    spec = served.agents[0].jobs[newer].spec
    assert spec.origin is not None
    assert (spec.origin.job, spec.origin.step, spec.origin.is_branch) == (job_id, 400, False)
    assert "train.steps=2000" in spec.entry
    assert served.server.get(path)["running_job"] == newer
    refused(served.server.ask("POST", path, {}), 409, "still-running")
    finish(served, newer)

    branch = served.server.ask("POST", path, {"begin": 200})
    assert branch.status_code == 201, branch.text
    origin = served.agents[0].jobs[branch.json()["job"]["job_id"]].spec.origin
    assert origin is not None
    assert (origin.step, origin.is_branch) == (200, True)
    finish(served, branch.json()["job"]["job_id"])


def test_checkpoints_are_pinned_and_deleted(served: Served) -> None:
    job_id = ended_run(served, 200, 400)

    def change(step: int, action: str) -> list[tuple[int, bool]]:
        path, body = f"/jobs/{job_id}/checkpoints", {"step": step, "action": action}
        answer = served.server.ask("POST", path, body)
        assert answer.status_code == 200, answer.text
        found = answer.json()["checkpoints"].get("checkpoints", ())
        return [(one["step"], one.get("is_pinned", False)) for one in found]

    assert change(200, "pin") == [(400, False), (200, True)]
    assert change(200, "unpin") == [(400, False), (200, False)]
    assert change(400, "delete") == [(200, False)]
    path = f"/jobs/{job_id}/checkpoints"
    gone = {"step": 400, "action": "delete"}
    refused(served.server.ask("POST", path, gone), 409, "no-checkpoint")
    refused(served.server.ask("POST", path, {"step": 1, "action": "eat"}), 400, "bad-request")
