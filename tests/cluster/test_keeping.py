"""Checkpoints outlive their run: copied and exported on two real nodes, through real launches."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from jupyter_mntrain.cli import main
from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.recipe.stored import with_settings
from jupyter_mntrain.workload.workload import from_path
from tests.agent.live import LiveAgent
from tests.cluster.test_resume import ENDED_S, RECIPE
from tests.waiting import until

pytestmark = pytest.mark.slow

STEPS = 25


def losses(job: Job) -> dict[int, float | None]:
    history = job.wait_for_history(ENDED_S)
    return {one.step: one.loss for one in history.ranks[max(history.ranks)].steps}


def files_below(path: Path) -> set[str]:
    return {str(one.relative_to(path)) for one in path.rglob("*") if one.is_file()}


@pytest.fixture
def first(cluster: Cluster, text: Path, tmp_path: Path) -> Job:
    """A run that was never broken, on both nodes' own disks."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(text=text, steps=STEPS, every=5))
    made, members = from_path(recipe), cluster.participants(("node1:1", "node2:1"))
    spec = JobSpec(entry=made.entry, files=made.files, participants=members)
    job = cluster.launch(with_settings(spec, ["checkpoint.keep=9"]))
    assert job.wait(ENDED_S).state == "succeeded", job.logs()
    return job


def test_a_copy_outlives_the_run_and_a_later_restart_never_goes_back_to_it(
    cluster: Cluster,
    first: Job,
    agents: list[LiveAgent],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    unbroken, kept = losses(first), tmp_path / "kept"
    own = [CheckpointDirectory(one.state / "runs" / first.id / "checkpoints") for one in agents]
    told = cluster.checkpoints(first.id).export(str(tmp_path / "hf10"), step=10)
    assert (told.step, told.nodes) == (10, ("node1",))
    assert_loads(tmp_path / "hf10", own)

    words = ["--json", "checkpoints", first.id, "--copy", str(kept), "--step", "10"]
    assert main(words + [word for agent in agents for word in ("--agent", agent.where)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["step"], said["path"], said["nodes"]) == (10, str(kept), ["node1", "node2"])
    assert_copied(kept, own)
    assert not any(one.is_pinned for one in first.checkpoints().checkpoints)
    with pytest.raises(SpecError):
        cluster.checkpoints(first.id).copy("kept")

    # Everything else is gone; a run that begins with the copy is killed after a newer save.
    for place in own:
        shutil.rmtree(place.path)
    again = msgspec.structs.replace(first.spec(), max_restarts=1)
    with pytest.raises(RefusedError) as refused:
        cluster.resume(first.id, spec=again, begin=str(kept / "nowhere"))
    assert refused.value.kind is Kind.NO_CHECKPOINT
    branch = cluster.resume(first.id, spec=again, begin=str(kept))
    until(lambda: (branch.view().saved_step or 0) >= 15, "a newer save", ENDED_S)
    pid = branch.view().parts[1].ranks[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert branch.wait(ENDED_S).state == "succeeded", branch.logs()
    view = branch.view()
    assert (view.attempt.number, view.run) == (2, branch.id)
    assert (view.resumed_step or 0) >= 15
    found = losses(branch)
    assert (min(found), max(found)) == ((view.resumed_step or 0) + 1, STEPS)
    assert found == {step: unbroken[step] for step in found}


def assert_loads(directory: Path, own: list[CheckpointDirectory]) -> None:
    """transformers loads it, with the weights that each rank saved."""
    state = AutoModelForCausalLM.from_pretrained(directory).state_dict()
    saved = {}
    for rank, place in enumerate(own):
        saved |= load_file(place.of(10) / shard_name(rank))
    weights = {name.removeprefix("model/"): one for name, one in saved.items() if "model/" in name}
    assert weights
    assert all(torch.equal(state[name], one) for name, one in weights.items())
    assert AutoTokenizer.from_pretrained(directory)("one").input_ids
    assert f"| steps | 10 of {STEPS} |" in (directory / "README.md").read_text()


def assert_copied(kept: Path, own: list[CheckpointDirectory]) -> None:
    """Every shard of both nodes is in the one directory, byte for byte."""
    copied = CheckpointDirectory(kept)
    assert copied.shards(copied.manifests()[10]) == (0, 1)
    for rank, place in enumerate(own):
        pair = [one.of(10) / shard_name(rank) for one in (place, copied)]
        assert len({hashlib.sha256(path.read_bytes()).digest() for path in pair}) == 1
    assert {"step-00000010/manifest.json", "description/config.json"} <= files_below(kept)
    assert not [name for name in files_below(kept) if "/.manifest" in name]
