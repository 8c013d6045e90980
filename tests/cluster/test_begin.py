"""``launch --from PATH``, through real launches: a run goes on of which no job is known."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from jupyter_mntrain.agent.attempt.processes import kill_all, marked
from jupyter_mntrain.cli import main
from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.launch.spec_file import read_spec, write_spec
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.recipe.stored import with_settings
from jupyter_mntrain.workload.workload import from_path
from tests.agent.live import LiveAgent
from tests.cluster.conftest import wait_for
from tests.cluster.test_resume import ENDED_S, EVERY, RECIPE
from tests.wording import says

pytestmark = pytest.mark.slow

HALF, STEPS = 10, 20


def losses(job) -> dict[int, float]:
    history = job.wait_for_history(ENDED_S)
    return {one.step: one.loss for one in history.ranks[max(history.ranks)].steps}


def forget_all_jobs(cluster: Cluster, agents: list[LiveAgent]) -> None:
    """Both nodes lose every record; what runs saved stays."""
    for agent in agents:
        agent.kill()
        for attempt in agent.state.glob("jobs/*/attempt-*"):
            kill_all(partial(marked, attempt))
        shutil.rmtree(agent.state / "jobs")
    for agent in agents:
        agent.start()
    wait_for(lambda: [node.liveness for node in cluster.nodes()] == ["up", "up"])
    wait_for(lambda: not cluster.jobs())


def assert_refusals(
    cluster: Cluster, spec: JobSpec, there: Path, other: Path, elsewhere: Path
) -> None:
    """What does not fit is refused before anything starts."""
    known = len(cluster.jobs())
    with pytest.raises(SpecError) as unfit:
        cluster.launch(with_settings(spec, ["train.batch_size=8"]), begin=str(there))
    assert "train.batch_size" in unfit.value.cause
    with pytest.raises(SpecError):
        cluster.launch(with_settings(spec, [f"train.steps={HALF}"]), begin=str(there))
    with pytest.raises(RefusedError) as absent:
        cluster.launch(spec, begin=str(elsewhere / "nowhere"))
    assert absent.value.kind is Kind.NO_CHECKPOINT
    shutil.copytree(other, elsewhere / "one")
    shard = next((elsewhere / "one").rglob(f"step-{STEPS:08d}/rank-0.safetensors"))
    shard.unlink()
    more = with_settings(spec, [f"train.steps={2 * STEPS}"])
    with pytest.raises(RefusedError) as torn:
        cluster.launch(more, begin=str(shard.parent))
    assert torn.value.kind is Kind.NO_CHECKPOINT
    assert "0" in torn.value.cause
    assert len(cluster.jobs()) == known


def test_a_checkpoint_directory_begins_a_run_of_which_no_job_is_known(
    cluster: Cluster,
    agents: list[LiveAgent],
    text: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(text=text, steps=STEPS, every=EVERY))
    made = from_path(recipe)
    both = cluster.participants(("node1:1", "node2:1"))
    spec = JobSpec(entry=made.entry, files=made.files, participants=both)
    whole = cluster.launch(spec)
    assert whole.wait(ENDED_S).state == "succeeded", whole.logs()
    unbroken = losses(whole)
    kept = tmp_path / "kept"
    first = cluster.launch(
        with_settings(spec, [f"train.steps={HALF}", f"checkpoint.directory={kept}"])
    )
    assert first.wait(ENDED_S).state == "succeeded", first.logs()
    there = kept / first.id
    forget_all_jobs(cluster, agents)

    # The same recipe with more steps: said, and exactly the losses of the unbroken run.
    words = ["launch", str(recipe), "--from", str(there), "--wait"]
    words += ["--member", "node1:1", "--member", "node2:1"]
    assert main([*words, *(w for agent in agents for w in ("--agent", agent.where))]) == 0
    said = capsys.readouterr().out
    assert says(f"from step {HALF}", said)
    assert says(f"train.steps {HALF} → {STEPS}", said)
    (view,) = cluster.jobs()
    job = cluster.job(view.job_id)
    assert (view.run, view.resumed_step) == (view.job_id, HALF)
    assert losses(job) == {step: unbroken[step] for step in range(HALF + 1, STEPS + 1)}
    assert max(CheckpointDirectory(there).manifests()) == HALF, "the other run keeps its own"

    # A job file carries it; on other ranks, too.
    again = read_spec(write_spec(job.spec()))
    assert again.origin is not None
    assert again.origin.place == f"{there}/step-{HALF:08d}"
    one = cluster.participants(("node2:1",))
    third = cluster.launch(
        JobSpec(entry=again.entry, files=again.files, participants=one), begin=again.origin.place
    )
    assert third.wait(ENDED_S).state == "succeeded", third.logs()
    assert losses(third) == losses(job)
    assert_refusals(cluster, spec, there, agents[1].state / "runs" / third.id, tmp_path)
