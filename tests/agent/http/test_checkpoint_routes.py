"""Checkpoint routes: what a node has of a run is listed, pinned and deleted."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.model.api import CheckpointChange
from jupyter_mntrain.model.records.checkpoint import Manifest, NodeCheckpoints
from tests.agent.live import launch
from tests.wording import says

pytestmark = pytest.mark.agents


def publish(directory: CheckpointDirectory, step: int) -> None:
    """This node's shard of two."""
    (directory.begin(step) / shard_name(0)).write_bytes(b"0123456789")
    directory.publish(Manifest(step, 1, (10, 20), hosts=("node1", "node2")))


def test_a_run_is_listed_pinned_and_deleted(agent):
    job = launch([agent], "pass")
    agent.ended(job)
    directory = CheckpointDirectory(agent.state / "runs" / job / "checkpoints")
    for step in (200, 400):
        publish(directory, step)
    (directory.begin(600) / shard_name(0)).write_bytes(b"half")
    (directory.path / "curves").write_bytes(b"x" * 7)
    path = f"/v1/jobs/{job}/checkpoints"

    def listed(answer) -> NodeCheckpoints:
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=NodeCheckpoints)

    def change(step: int, action: str):
        return agent.send("POST", path, CheckpointChange(step=step, action=action))

    found = listed(agent.get(path))
    assert [(one.manifest.step, one.shards) for one in found.checkpoints] == [
        (200, (0,)),
        (400, (0,)),
    ]
    assert (found.run, found.directory, found.other_bytes) == (job, str(directory.path), 7)
    assert [(one.step, one.shard_bytes) for one in found.unfinished] == [(600, {0: 4})]

    pinned = listed(change(200, "pin"))
    assert [one.is_pinned for one in pinned.checkpoints] == [True, False]
    refused = change(200, "delete")
    assert refused.status_code == 409
    assert says("pinned", refused.json()["cause"])
    listed(change(200, "unpin"))
    listed(change(200, "delete"))
    left = listed(change(200, "delete"))
    assert [one.manifest.step for one in left.checkpoints] == [400], "and repeating it is harmless"
    assert agent.get("/v1/jobs/j-00000000/checkpoints").status_code == 404


def test_the_newest_of_a_running_job_is_not_deleted(agent):
    job = launch([agent], "import time; time.sleep(600)")
    directory = CheckpointDirectory(agent.state / "runs" / job / "checkpoints")
    for step in (200, 400):
        publish(directory, step)
    path = f"/v1/jobs/{job}/checkpoints"
    newest = CheckpointChange(step=400, action="delete")
    assert agent.send("POST", path, newest).status_code == 409
    older = CheckpointChange(step=200, action="delete")
    assert agent.send("POST", path, older).status_code == 200
    assert sorted(directory.manifests()) == [400]
