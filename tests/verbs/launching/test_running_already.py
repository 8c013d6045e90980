"""What a notebook runs already is not launched a second time, unless that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.launch.files.hub_names import HubId, hub_id
from jupyter_mntrain.launch.project.tree import Tree, TreeFile
from jupyter_mntrain.model.errors import NodeError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.plan.resume import refuse_running
from jupyter_mntrain.show.bundles import PROGRAM
from tests.standin.job_handle import StandInJob
from tests.standin.screen import Paper
from tests.standin.training import sample_job
from tests.verbs.launching.test_resume import RECIPE_JOB
from tests.wording import says


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print(1)")
    return tmp_path


@pytest.fixture
def launch(do: Any, script: Path) -> Any:
    """Run a cell that launches the script."""

    def run(*words: str, **changes: Any) -> Any:
        changes = {"program": PROGRAM, "screen": Paper(in_background=True), **changes}
        return do("launch", "train.py", "--member", "wopr:1", *words, directory=script, **changes)

    return run


@pytest.fixture
def running(launch: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> StandInJob:
    """The job of the cell, which has been launched once."""
    submitters: list[str] = []
    begin = cluster.launch

    def note(spec: Any, **how: Any) -> StandInJob:
        submitters.append(how["submitted_by"])
        return begin(spec, **how)

    monkeypatch.setattr(cluster, "launch", note)
    launch()
    job = cluster.job(cluster.jobs()[0].job_id)
    (spec,) = cluster.launches
    change(job, spec=spec, submitted_by=submitters[0])
    cluster.launches.clear()
    return job


def change(job: StandInJob, **changes: Any) -> None:
    job.change_view(msgspec.structs.replace(job.view(), **changes))


def test_the_second_run_shows_the_job_and_says_what_else_can_be_done(
    launch: Any, text: Any, as_json: Any, cluster: Any, running: StandInJob
) -> None:
    screen = Paper(in_background=True)
    outcome = launch(screen=screen)
    assert cluster.launches == []
    assert screen.shown == [running]
    assert outcome.job is running
    said = text(screen.said[-1])
    assert running.id in said
    assert says("--wait", said)
    assert says("--another", said)
    assert as_json(outcome)["already_running"] is True


def test_who_waits_waits_for_that_one(
    launch: Any, as_json: Any, cluster: Any, running: StandInJob
) -> None:
    outcome = launch("--wait")
    assert cluster.launches == []
    assert outcome.exit_code == 0
    assert as_json(outcome)["already_running"] is True


@pytest.mark.parametrize(
    "words", [("--another",), ("--name", "b"), ("--env", "A=1"), ("--member", "hal:1")]
)
def test_another_one_is_launched(
    launch: Any, cluster: Any, running: StandInJob, words: tuple[str, ...]
) -> None:
    launch(*words)
    assert len(cluster.launches) == 1


def test_a_command_line_is_asked_for_what_it_says(
    launch: Any, cluster: Any, running: StandInJob
) -> None:
    launch(program="mntrain")
    assert len(cluster.launches) == 1


def test_what_has_ended_is_somebody_elses_or_has_changed_is_launched(
    launch: Any, script: Path, cluster: Any, running: StandInJob
) -> None:
    mine = running.view().submitted_by
    change(running, submitted_by="somebody@elsewhere")
    launch()
    change(running, submitted_by=mine)
    (script / "train.py").write_text("print(2)")
    launch()
    (script / "train.py").write_text("print(1)")
    running.become("failed")
    launch()
    assert len(cluster.launches) == 3


def test_of_a_project_only_notebooks_may_have_changed(
    launch: Any, script: Path, cluster: Any, running: StandInJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    (script / "run.ipynb").write_text("first")
    launch("--project", ".")
    ((spec, staged),) = zip(cluster.launches, cluster.projects[-1:], strict=True)
    change(running, spec=msgspec.structs.replace(spec, project=staged.sha256))
    monkeypatch.setattr(StandInJob, "project", lambda _: staged.tree, raising=False)
    cluster.launches.clear()
    (script / "run.ipynb").write_text("with outputs")
    launch("--project", ".")
    assert cluster.launches == []
    other = Tree((*staged.tree.files, TreeFile("z.py", "0" * 64, 1)))
    monkeypatch.setattr(StandInJob, "project", lambda _: other)
    launch("--project", ".")

    def silent(_: object) -> Tree:
        raise NodeError("no answer")

    monkeypatch.setattr(StandInJob, "project", silent)
    launch("--project", ".")
    assert len(cluster.launches) == 2


def test_a_model_of_the_hub_is_the_same_as_long_as_its_commit_is(
    do: Any, script: Path, cluster: Any, running: StandInJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = ["0123456789" * 4]

    def place(spec: JobSpec, **_: object) -> JobSpec:
        """As the hub, which is asked at each launch, before anything else."""
        copy = HubId("org/name", commits[-1]).copy
        asked = hub_id(program_of(spec).model())
        return spec if asked is None else program_of(spec).with_settings([f'model.path="{copy}"'])

    def launch() -> None:
        how = {"program": PROGRAM, "screen": Paper(in_background=True), "directory": script}
        do("launch", "hub.toml", "--member", "wopr:1", "--name", "hub", **how)

    monkeypatch.setattr(cluster, "with_hub_commit", place, raising=False)
    (script / "hub.toml").write_text('[model]\npath = "org/name"\n[train]\nsteps = 2\n')
    launch()
    (spec,) = cluster.launches
    change(running, spec=place(spec))
    launch()
    assert len(cluster.launches) == 1
    commits.append("9876543210" * 4)
    launch()
    assert len(cluster.launches) == 2


@pytest.fixture
def resumed(do: Any, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Resume a job in a cell that has already done so; its job runs."""
    (ended,) = cluster._jobs.values()
    ended.become("failed")
    change(ended, spec=RECIPE_JOB)

    def resume(*words: str, **changes: Any) -> Any:
        changes = {"program": PROGRAM, "screen": Paper(in_background=True), **changes}
        return do("resume", ended.id, *words, directory=tmp_path, **changes)

    submitters: list[str] = []
    begin = cluster.launch

    def note(spec: Any, **how: Any) -> Any:
        submitters.append(how["submitted_by"])
        return begin(spec, **how)

    monkeypatch.setattr(cluster, "launch", note)
    resume()
    (spec,) = cluster.launches
    cluster.launches.clear()
    running = StandInJob(sample_job({"wopr": 1, "muthur": 1}), ends_as="succeeded")
    running.id = JobId("j-00000002")
    change(running, job_id=running.id, spec=spec, submitted_by=submitters[0])
    cluster._jobs[running.id] = running
    plan_resume = ended.plan_resume

    def refusing(spec: JobSpec | None = None, *, begin: int | str | None = None) -> Any:
        refuse_running([running.view()])
        return plan_resume(spec, begin=begin)

    monkeypatch.setattr(ended, "plan_resume", refusing)
    return resume, running


def test_a_cell_that_resumes_again_shows_the_job_that_it_has_resumed(
    text: Any, as_json: Any, cluster: Any, resumed: Any
) -> None:
    resume, running = resumed
    screen = Paper(in_background=True)
    outcome = resume(screen=screen)
    assert cluster.launches == []
    assert screen.shown == [running]
    assert as_json(outcome)["already_running"] is True
    said = text(screen.said[-1])
    assert running.id in said
    assert "--another" not in said
    assert resume("--wait").exit_code == 0


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (("--steps", "900"), {}),
        (("--dry-run",), {}),
        (("--from", "400"), {}),
        ((), {"program": "mntrain"}),
    ],
)
def test_another_resumption_is_refused_while_one_runs(
    resumed: Any, words: tuple[str, ...], changes: dict[str, Any]
) -> None:
    with pytest.raises(RefusedError) as caught:
        resumed[0](*words, **changes)
    assert caught.value.kind is Kind.STILL_RUNNING


def test_somebody_elses_resumption_is_refused(resumed: Any) -> None:
    resume, running = resumed
    change(running, submitted_by="somebody@else")
    with pytest.raises(RefusedError):
        resume()
