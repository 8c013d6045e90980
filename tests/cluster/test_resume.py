"""Resume, through real launches on two real nodes: every ending, other ranks, the same losses.

Also what outlives its run: copies, exports, and runs that begin with a checkpoint of which no job
is known. All tests of this file share one run that was never broken, and one that was copied.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from jupyter_mntrain.agent.attempt.processes import kill_all, marked
from jupyter_mntrain.cli import main
from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.launch.spec_file import read_spec, write_spec
from jupyter_mntrain.model.errors import RecipeError, RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.lifecycle.running_changes import changes_of
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import JobSpec, JobView
from jupyter_mntrain.workload.workload import from_path
from tests.agent.live import LiveAgent
from tests.cluster.conftest import wait_for
from tests.waiting import until
from tests.wording import says, wording

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

STEPS = 100
EVERY = 5
ENDED_S = 900.0
"""On a machine that is busy with other work; alone a job takes ten seconds."""

RECIPE = """
[model]
preset = "llama-tiny"
[data]
source = "{text}"
vocabulary_size = 300
sequence_length = 16
[pipeline]
microbatches = 4
[optimizer]
min_ratio = 1
warmup_steps = 10
[train]
steps = {steps}
batch_size = 4
timeout_s = 60
[checkpoint]
interval_steps = {every}
[output]
at_end = false
[report]
to = []
"""
"""The learning rate is constant, so a run that is given more steps is one that had them at once."""


class Runs:
    """Launches and resumes, and compares losses with those of a run that was never broken."""

    def __init__(self, cluster: Cluster, text: Path, unbroken: dict[int, float]) -> None:
        self.cluster = cluster
        self.recipe = RECIPE.format(text=text, steps=STEPS, every=EVERY)
        self._recipe = text.parent / "recipe.toml"
        self._recipe.write_text(self.recipe)
        self.unbroken = unbroken

    def spec(self, *settings: str, members: tuple[str, ...] = ("node1:1", "node2:1")) -> JobSpec:
        made = from_path(self._recipe)
        participants = self.cluster.participants(members)
        spec = JobSpec(entry=made.entry, files=made.files, participants=participants)
        return program_of(spec).with_settings(settings)

    def launch(self, *settings: str, members: tuple[str, ...] = ("node1:1", "node2:1")) -> Job:
        return self.cluster.launch(self.spec(*settings, members=members))

    def on(self, job: Job, *members: str) -> JobSpec:
        """The job's spec on other nodes."""
        participants = self.cluster.participants(members)
        return msgspec.structs.replace(job.spec(), participants=participants)

    def ended(self, job: Job) -> dict[int, float]:
        """Wait for the end. Its losses by step, which are those of the unbroken run."""
        view = job.wait(ENDED_S)
        history = job.wait_for_history(ENDED_S)
        last = max(history.ranks)
        found = {one.step: one.loss for one in history.ranks[last].steps}
        assert found == {step: self.unbroken.get(step) for step in found}, view
        return found  # type: ignore[return-value]

    def reach(self, job: Job, step: int) -> None:
        """Wait until the ranks have made a step."""

        def has_come_so_far() -> bool:
            ranks = job.history().ranks.values()
            made = [one.steps[-1].step for one in ranks if one.steps]
            return len(made) == job.view().attempt.world_size and min(made) >= step

        until(has_come_so_far, f"step {step}", ENDED_S)


@pytest.fixture(scope="module")
def once() -> dict[int, float]:
    return {}


@pytest.fixture
def runs(cluster: Cluster, text: Path, once: dict[int, float]) -> Runs:
    made = Runs(cluster, text, once)
    if not once:
        job = made.launch(members=("node1:1",))
        assert job.wait(ENDED_S).state == "succeeded", job.logs()
        steps = job.wait_for_history(ENDED_S).ranks[0].steps  # type: ignore[index]
        once.update({one.step: one.loss for one in steps if one.loss is not None})
    assert len(once) == STEPS
    return made


def assert_goes_on(job: Job, run: str, step: int, found: dict[int, float]) -> None:
    """What the ranks confirm, and what the record says, is the step after that checkpoint."""
    view = job.view()
    assert (view.run, view.resumed_step) == (run, step)
    assert min(found) == step + 1


def kill_a_rank(view: JobView, victim: int) -> None:
    pid = [rank.pid for part in view.parts for rank in part.ranks][victim]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def crash(agents: list[LiveAgent]) -> None:
    """Both nodes lose all processes at once."""
    for agent in agents:
        agent.kill()
        for attempt in agent.state.glob("jobs/*/attempt-*"):
            kill_all(partial(marked, attempt))


def test_after_stop_crash_and_kills_and_on_other_ranks_losses_are_those_of_an_unbroken_run(
    runs: Runs, agents: list[LiveAgent], tmp_path: Path
) -> None:
    chance = random.Random(5)
    shared = tmp_path / "shared"

    # Stopped after saving.
    first = runs.launch(f"checkpoint.directory={shared}")
    runs.reach(first, chance.randrange(1, EVERY))
    with pytest.raises(RefusedError) as caught:
        runs.cluster.resume(first.id)
    assert caught.value.kind is Kind.STILL_RUNNING
    first.save(is_last=True)
    runs.ended(first)
    saved = first.view().saved_step or 0

    # Then on one rank, which is killed at a random moment: the job fails.
    second = runs.cluster.resume(first.id, spec=runs.on(first, "node1:1"))
    runs.reach(second, saved + chance.randrange(1, 2 * EVERY))
    kill_a_rank(second.view(), 0)
    found = runs.ended(second)
    assert second.state == "failed"
    assert_goes_on(second, first.id, saved, found)

    # Then on three ranks, until both nodes crash.
    saved = second.checkpoints().checkpoints[0].step
    third = runs.cluster.resume(second.id, spec=runs.on(first, "node2:1", "node1:2"))
    runs.reach(third, saved + chance.randrange(1, 2 * EVERY))
    crash(agents)
    for agent in agents:
        agent.start()
    wait_for(lambda: third.state == "failed")
    wait_for(lambda: [node.liveness for node in runs.cluster.nodes()] == ["up", "up"])
    found = runs.ended(third)
    assert_goes_on(third, first.id, saved, found)

    # And to the end.
    saved = third.checkpoints().checkpoints[0].step
    last = runs.cluster.resume(third.id, spec=runs.on(first, "node1:1", "node2:1"))
    found = runs.ended(last)
    assert last.state == "succeeded"
    assert_goes_on(last, first.id, saved, found)
    assert max(found) == STEPS
    listed = last.checkpoints()
    assert listed.checkpoints[0].step == STEPS
    assert all(one.is_whole for one in listed.checkpoints)
    attempts = [one.attempt for one in listed.checkpoints]
    assert attempts == sorted(attempts, reverse=True)
    assert attempts[0] >= 4


HALF = 20
COPIED = 10
"""Steps of a run, and its checkpoint that is copied."""


class Kept(NamedTuple):
    """A run whose nodes have disks of their own, and the copy of one of its checkpoints."""

    run: str
    copy: Path


@pytest.fixture(scope="module")
def known() -> dict[str, Kept]:
    return {}


@pytest.fixture
def kept(
    runs: Runs,
    agents: list[LiveAgent],
    known: dict[str, Kept],
    text: Path,
    capsys: pytest.CaptureFixture[str],
) -> Kept:
    """A checkpoint is copied from both nodes: one is enough for all tests."""
    if not known:
        first = runs.launch(f"train.steps={HALF}", "checkpoint.keep=9")
        assert max(runs.ended(first)) == HALF
        copy = text.parent / "kept"
        words = ["--json", "checkpoints", first.id, "--copy", str(copy), "--step", str(COPIED)]
        assert main(words + where(agents)) == 0
        said = json.loads(capsys.readouterr().out)
        nodes = ["node1", "node2"]
        assert (said["step"], said["path"], said["nodes"]) == (COPIED, str(copy), nodes)
        assert_copied(copy, own_checkpoints(agents, first.id))
        assert not any(one.is_pinned for one in first.checkpoints().checkpoints)
        with pytest.raises(SpecError):
            runs.cluster.checkpoints(first.id).copy("kept")
        known["one"] = Kept(first.id, copy)
    return known["one"]


def where(agents: list[LiveAgent]) -> list[str]:
    """As the command line wants it."""
    return [word for agent in agents for word in ("--agent", agent.where)]


def own_checkpoints(agents: list[LiveAgent], run: str) -> list[CheckpointDirectory]:
    """Of each node."""
    return [CheckpointDirectory(one.state / "runs" / run / "checkpoints") for one in agents]


def test_a_run_that_succeeded_makes_more_steps_and_begets_another(
    runs: Runs,
    agents: list[LiveAgent],
    kept: Kept,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = runs.cluster.job(kept.run)
    with pytest.raises(SpecError) as caught:
        runs.cluster.resume(first.id)
    assert says(f"has {HALF} steps in all", caught.value.cause)
    with pytest.raises(RefusedError) as refused:
        runs.cluster.resume(first.id, steps=STEPS, spec=runs.on(first, "node1:2"))
    assert refused.value.kind is Kind.NO_CHECKPOINT
    assert "node2" in refused.value.cause
    assert "--member node2:1" in refused.value.fix

    told = runs.cluster.checkpoints(first.id).export(str(tmp_path / "hf"), step=COPIED)
    assert (told.step, told.nodes) == (COPIED, ("node1",))
    assert_loads(tmp_path / "hf", own_checkpoints(agents, first.id))

    # More steps.
    assert main(["resume", first.id, "--steps", str(2 * HALF), "--wait", *where(agents)]) == 0
    out = capsys.readouterr().out
    assert says(f"from step {HALF}", out)
    assert says(f"train.steps {HALF} → {2 * HALF}", out)
    assert says(f"resumed after step {HALF}", out)
    second = runs.cluster.job(runs.cluster.jobs()[0].job_id)
    found = runs.ended(second)
    assert_goes_on(second, first.id, HALF, found)
    assert max(found) == 2 * HALF

    # A branch begins with an older checkpoint, and takes nothing from the run that has it.
    before = [one.step for one in second.checkpoints().checkpoints]
    older = before[1]
    assert older < 2 * HALF
    branch = runs.cluster.resume(second.id, begin=older)
    found = runs.ended(branch)
    assert_goes_on(branch, branch.id, older, found)
    assert [one.step for one in second.checkpoints().checkpoints] == before
    assert max(own_checkpoints(agents, branch.id)[0].manifests()) == 2 * HALF


def assert_loads(directory: Path, own: list[CheckpointDirectory]) -> None:
    """transformers loads it, with the weights that each rank saved."""
    state = AutoModelForCausalLM.from_pretrained(directory).state_dict()
    saved = {}
    for rank, place in enumerate(own):
        saved |= load_file(place.of(COPIED) / shard_name(rank))
    weights = {name.removeprefix("model/"): one for name, one in saved.items() if "model/" in name}
    assert weights
    assert all(torch.equal(state[name], one) for name, one in weights.items())
    assert AutoTokenizer.from_pretrained(directory)("one").input_ids
    assert f"| steps | {COPIED} of {HALF} |" in (directory / "README.md").read_text()


def assert_copied(copy: Path, own: list[CheckpointDirectory]) -> None:
    """Every shard of both nodes is in the one directory, byte for byte."""
    copied = CheckpointDirectory(copy)
    assert copied.shards(copied.manifests()[COPIED]) == (0, 1)
    for rank, place in enumerate(own):
        pair = [one.of(COPIED) / shard_name(rank) for one in (place, copied)]
        assert len({hashlib.sha256(path.read_bytes()).digest() for path in pair}) == 1
    names = {str(one.relative_to(copy)) for one in copy.rglob("*") if one.is_file()}
    assert {f"step-{COPIED:08d}/manifest.json", "description/config.json"} <= names
    assert not [name for name in names if "/.manifest" in name]


def test_a_copy_outlives_the_run_and_a_later_restart_never_goes_back_to_it(
    runs: Runs, agents: list[LiveAgent], kept: Kept
) -> None:
    """Killed at a random step; ten more times: ``tests/train/checkpoint/test_kills.py``."""
    chance = random.Random(1)
    first = runs.cluster.job(kept.run)
    for place in own_checkpoints(agents, kept.run):
        shutil.rmtree(place.path)
    last = STEPS - STEPS % 3  # the last step is always logged
    spec = program_of(first.spec()).with_settings([f"train.steps={last}"])
    spec = msgspec.structs.replace(spec, max_restarts=1)
    with pytest.raises(RefusedError) as refused:
        runs.cluster.resume(kept.run, spec=spec, begin=str(kept.copy / "nowhere"))
    assert refused.value.kind is Kind.NO_CHECKPOINT

    # It begins with the copy, is given another setting, and killed after a newer save.
    job = runs.cluster.resume(kept.run, spec=spec, begin=str(kept.copy))
    until(lambda: job.state == "running", "its ranks", ENDED_S)
    changed = job.set(["train.log_interval=3"], timeout_s=ENDED_S)
    assert changed.change is not None
    step, victim = chance.randrange(COPIED + EVERY + 1, STEPS - 3 * EVERY), chance.randrange(2)
    until(lambda: (job.view().saved_step or 0) >= COPIED + EVERY, "a newer save", ENDED_S)
    runs.reach(job, step)
    seen = {one.step: one.loss for one in job.history().ranks[1].steps}  # type: ignore[index]
    kill_a_rank(job.view(), victim)
    view = job.wait(ENDED_S)
    assert (view.state, view.attempt.number, view.run) == ("succeeded", 2, job.id), job.logs()
    found = runs.ended(job)
    assert (min(found), max(found)) == ((view.resumed_step or 0) + 1, last)
    assert min(found) > COPIED + EVERY, "not from the copy"
    assert min(found) >= step - 2 * EVERY, (
        "no more than an interval and what was being saved is lost"
    )
    assert seen == {number: runs.unbroken[number] for number in seen}
    assert changes_of(view) == (changed.change,), "the next attempt knows it"
    (setting,) = (one for one in job.settings() if one.name == "train.log_interval")
    assert (setting.value, setting.origin) == (3, "--set")
    said = [line.text for line in job.logs(rank=0) if re.search(r"\bstep (\d+)/", line.text)]
    assert {int(line.split("/")[0].split()[-1]) % 3 for line in said[1:]} == {0}, said


def test_a_checkpoint_directory_begins_a_run_of_which_no_job_is_known(
    runs: Runs,
    agents: list[LiveAgent],
    kept: Kept,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe, steps = tmp_path / "recipe.toml", HALF + EVERY
    recipe.write_text(runs.recipe.replace(f"steps = {STEPS}", f"steps = {steps}"))
    forget_all_jobs(runs.cluster, agents)

    # The same recipe with more steps: said, and exactly the losses of the unbroken run.
    words = ["launch", str(recipe), "--from", str(kept.copy), "--wait"]
    words += ["--member", "node1:1", "--member", "node2:1"]
    assert main([*words, *where(agents)]) == 0
    said = capsys.readouterr().out
    assert says(f"from step {COPIED}", said)
    assert says(f"train.steps {HALF} → {steps}", said)
    (view,) = runs.cluster.jobs()
    job = runs.cluster.job(view.job_id)
    assert (view.run, view.resumed_step) == (view.job_id, COPIED)
    found = runs.ended(job)
    assert (min(found), max(found)) == (COPIED + 1, steps)
    assert max(CheckpointDirectory(kept.copy).manifests()) == COPIED, "the other run keeps its own"

    # A job file carries it; on other ranks, too.
    again = read_spec(write_spec(job.spec()))
    assert again.origin is not None
    assert again.origin.place == f"{kept.copy}/step-{COPIED:08d}"
    one = runs.cluster.participants(("node2:1",))
    third = runs.cluster.launch(
        JobSpec(entry=again.entry, files=again.files, participants=one), begin=again.origin.place
    )
    assert runs.ended(third) == found
    assert third.state == "succeeded", third.logs()
    spec = runs.spec(f"train.steps={steps}")
    assert_refusals(runs.cluster, spec, kept.copy, agents[1].state / "runs" / third.id, tmp_path)


def forget_all_jobs(cluster: Cluster, agents: list[LiveAgent]) -> None:
    """Both nodes lose every record; what runs saved stays."""
    crash(agents)
    for agent in agents:
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
        cluster.launch(program_of(spec).with_settings(["train.batch_size=8"]), begin=str(there))
    assert "train.batch_size" in unfit.value.cause
    with pytest.raises(SpecError):
        cluster.launch(program_of(spec).with_settings([f"train.steps={COPIED}"]), begin=str(there))
    with pytest.raises(RefusedError) as absent:
        cluster.launch(spec, begin=str(elsewhere / "nowhere"))
    assert absent.value.kind is Kind.NO_CHECKPOINT
    shutil.copytree(other, elsewhere / "one")
    last = HALF + EVERY
    shard = next((elsewhere / "one").rglob(f"step-{last:08d}/rank-0.safetensors"))
    shard.unlink()
    more = program_of(spec).with_settings([f"train.steps={2 * last}"])
    with pytest.raises(RefusedError) as torn:
        cluster.launch(more, begin=str(shard.parent))
    assert torn.value.kind is Kind.NO_CHECKPOINT
    assert "0" in torn.value.cause
    assert len(cluster.jobs()) == known


def test_it_saves_when_asked_and_ends_when_asked(runs: Runs) -> None:
    job = runs.launch("train.steps=100_000", "checkpoint.interval_steps=0")
    until(lambda: job.view().parts[0].saves and job.state == "running", "steps", ENDED_S)
    before = job.view()
    job.save()
    told = job.wait_for_save(before, ENDED_S)
    assert told is not None
    saved = told.step
    changed = job.set(["train.steps=50_000", "optimizer.learning_rate=1e-4"], timeout_s=ENDED_S)
    assert changed.change is not None
    assert changed.change.step > saved
    assert {part.changes for part in job.view().parts if part.changes} == {(changed.change,)}
    with pytest.raises(RecipeError):
        job.set(["train.steps=1"])
    with pytest.raises(SpecError):
        job.set(["train.batch_size=16"])
    job.save(is_last=True, reason="enough, after saving")
    view = job.wait(ENDED_S)
    assert view.state == "canceled"
    assert view.parts[0].stop_reason == "enough, after saving"
    last = {part.saved_step for part in view.parts}
    assert len(last) == 1, "all ranks ended after the same step"
    assert (last.pop() or 0) > saved
    steps = {rank.step for part in view.parts for rank in part.ranks}
    assert steps == {view.parts[0].saved_step}
    with pytest.raises(RefusedError, match=wording("is over")):
        job.save()
    with pytest.raises(RefusedError, match="canceled"):
        job.set(["train.log_interval=3"])


SCRIPT = """
import os, sys, time
from pathlib import Path
from jupyter_mntrain.telemetry import Recorder

kept = Path(os.environ["MNTRAIN_CHECKPOINT_DIR"])
kept.mkdir(exist_ok=True)
first = int((kept / "step").read_text()) if (kept / "step").exists() else 0
told = os.environ.get("MNTRAIN_RESUME_STEP"), os.environ.get("MNTRAIN_SAVED_STEP")
assert told == ((str(first),) * 2 if first else (None, None)), told
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
with Recorder() as recorder:
    recorder.start(resumed_step=first or None)
    for step in range(first + 1, first + 4):
        recorder.step(step=step, tokens=1, loss=1 / step)
    (kept / "step").write_text(str(step))
    recorder.saved(step)
    sys.exit(step < 6)
"""


def test_a_script_saves_only_by_itself_and_finds_its_own_checkpoints_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    participants, go = cluster.participants(["node1:1"]), tmp_path / "go"
    spec = JobSpec(entry=("own.py", str(go)), files={"own.py": SCRIPT}, participants=participants)
    first = cluster.launch(spec)
    wait_for(lambda: first.state == "running")
    with pytest.raises(RefusedError, match=wording(r"do not save on request.*ControlReader")):
        first.save()
    with pytest.raises(SpecError, match=wording("runs own.py .*not a recipe")):
        first.set(["train.steps=5"])
    go.touch()
    assert first.wait(ENDED_S).state == "failed", first.logs()
    second = cluster.resume(first.id)
    view = second.wait(ENDED_S)
    assert view.state == "succeeded", second.logs()
    assert (view.run, view.resumed_step, view.saved_step) == (first.id, 3, 6)
    with pytest.raises(SpecError):
        cluster.resume(second.id, steps=9)
