"""Resuming from the panel: what it offers, what it says, and what it starts."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.cluster.launch.resume import ResumePlan
from jupyter_mntrain.launch.progress import SILENT
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import JobSpec, Origin, Participant
from jupyter_mntrain.show.formats import SPACE
from jupyter_mntrain.verbs.panel.last_choices import Memory
from jupyter_mntrain.verbs.panel.panel import Panel
from jupyter_mntrain.verbs.panel.resumption import resume_text
from tests.standin.cluster import StandInCluster, node
from tests.standin.job_handle import StandInJob
from tests.standin.screen import make_context, run_words
from tests.standin.training import sample_job
from tests.verbs.panel.opened import choose, row

SPEC = JobSpec(
    entry=("-m", "jupyter_mntrain.train", "recipe.toml", "--set", "train.steps=500"),
    participants=(Participant(node="wopr", nproc=2), Participant(node="muthur")),
    name="small",
    files={"recipe.toml": '[model]\npreset = "llama-tiny"\n'},
)
SAME = "Same nodes and settings, so the losses will be those of an unbroken run."
CHANGED = "Changed: ranks 2 → 3. The losses will still be those of an unbroken run."


@pytest.fixture
def job() -> StandInJob:
    made = StandInJob(sample_job({"wopr": 2, "muthur": 1}))
    view = made.view()
    parts = tuple(msgspec.structs.replace(one, saved_step=400) for one in view.parts)
    made.change_view(msgspec.structs.replace(view, spec=SPEC, parts=parts))
    made.become("canceled")
    return made


@pytest.fixture
def cluster(job: StandInJob) -> StandInCluster:
    return StandInCluster([node("muthur", 2, gpus=1), node("wopr", 1, gpus=2)], [job])


@pytest.fixture
def resuming(cluster: StandInCluster, job: StandInJob, here: Path) -> Panel:
    context = make_context(cluster, directory=here, program="%mntrain")
    memory = Memory(here / "state" / "panel.json")
    args = Namespace(cluster=None, agent=None)
    return Panel(context, args, resumes=job.id[:6], memory=memory)


def test_it_begins_with_the_nodes_of_the_job_and_goes_on_with_the_chosen_ones(
    resuming: Panel, cluster: StandInCluster, job: StandInJob
) -> None:
    form = resuming.form()
    assert {one.name: (one.takes_part, one.gpus) for one in form.rows} == {
        "wopr": (True, "2"),
        "muthur": (True, "1"),
    }
    assert row(form, "wopr").is_head
    assert {field.name: field.text for field in form.fields}["steps"] == "500"
    form = choose(
        resuming,
        steps="600",
        nodes=resuming.choices.with_node("muthur", is_used=False).nodes,
    )
    assert resuming.look(form)
    assert resuming.resume is not None
    assert (resuming.resume.step, resuming.resume.can_start) == (400, True)
    assert resuming.command(form) == (
        f"%mntrain resume {job.id} --member wopr:2 --set train.steps=600"
    )
    resuming.go_on(form, SILENT)
    (spec,) = cluster.launches
    assert spec.origin is not None
    assert (spec.origin.job, spec.origin.step, spec.world_size) == (job.id, 400, 2)
    assert spec.entry[-2:] == ("--set", "train.steps=600")


def test_a_run_that_has_made_its_steps_is_told_so_with_a_button(resuming: Panel) -> None:
    form = choose(resuming, steps="400")
    assert resuming.look(form)
    found = resuming.resume
    assert found is not None
    assert not found.can_start
    assert found.fix is not None
    # Options of the command line are of no use next to a button.
    assert "--" not in found.text
    resuming.choices = found.fix.choices
    assert resuming.choices.steps == "800"
    resuming.look(resuming.form())
    assert resuming.resume is not None
    assert resuming.resume.can_start


def test_what_was_saved_meanwhile_is_not_resumed_unseen(resuming: Panel, job: StandInJob) -> None:
    form = resuming.form()
    resuming.look(form)
    assert resuming.resume is not None
    resuming.resume = msgspec.structs.replace(resuming.resume, step=200)
    with pytest.raises(SpecError):
        resuming.go_on(form, SILENT)


def test_the_last_job_of_a_recipe_can_be_gone_on_with(
    cluster: StandInCluster, job: StandInJob, here: Path
) -> None:
    def opened() -> Panel:
        context = make_context(cluster, directory=here)
        memory = Memory(here / "state" / "panel.json")
        args = Namespace(cluster=None, agent=None)
        return Panel(context, args, target="small.toml", memory=memory)

    first = opened()
    first.look(first.form())
    assert first.resume is None
    cluster.to_launch = job
    job.become("running")
    first.launch(first.form(), SILENT)
    first.look(first.form())
    assert first.resume is None
    job.become("failed")
    assert first.look(first.form())
    later = opened()
    later.look(later.form())
    assert later.resume is not None
    assert later.resume.job == job.id


def test_the_verb_takes_a_job_or_a_target(
    cluster: StandInCluster, job: StandInJob, here: Path
) -> None:
    context = make_context(cluster, directory=here)
    outcome = run_words(["panel", "--resume", job.id], context)
    assert outcome.data["resume"]["label"].endswith("400")
    with pytest.raises(SpecError):
        run_words(["panel", "small.toml", "--resume", job.id], context)


@pytest.mark.wording
@pytest.mark.parametrize(
    ("reached", "ranks", "said"),
    [
        (400, 2, f"No step is repeated. {SAME}"),
        (403, 2, f"3 steps are repeated (6 s). {SAME}"),
        (401, 3, f"1 step is repeated (2 s). {CHANGED}"),
    ],
)
def test_the_sentence_is_that_of_the_page(reached: int, ranks: int, said: str) -> None:
    run = JobId("j-0000abcd")
    origin = Origin(run, run, step=400, reached=reached)
    spec = msgspec.structs.replace(SPEC, origin=origin)
    plan = ResumePlan(spec=spec, job=run, run=run, step=400, ranks=(2, ranks))
    assert resume_text(plan, step_s=2.0).replace(SPACE, " ") == said


def test_the_nodes_are_asked_for_the_interpreter_that_the_job_had(
    job: StandInJob, cluster: StandInCluster, resuming: Panel
) -> None:
    spec = msgspec.structs.replace(SPEC, python="conda:lm")
    job.change_view(msgspec.structs.replace(job.view(), spec=spec))
    resuming.choose(msgspec.structs.replace(resuming.target, spec=spec))
    assert resuming.look(resuming.form())
    assert [one.python for one in cluster.workplaces_asked] == ["conda:lm"]
