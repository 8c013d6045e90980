"""``resume`` and ``checkpoints``: what they ask for, and what they say."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.verbs.launching.answering.generate import step_words
from tests.standin.cluster import StandInCluster, node
from tests.standin.job_handle import StandInJob
from tests.standin.plans import plan_of
from tests.standin.screen import Paper
from tests.standin.training import sample_job
from tests.wording import says, wording

RECIPE_JOB = JobSpec(
    entry=("-m", "jupyter_mntrain.train", "recipe.toml", "--set", "train.steps=500"),
    participants=(Participant(node="wopr"), Participant(node="muthur")),
    files={"recipe.toml": '[model]\npreset = "llama-tiny"\n'},
)
SCRIPT_JOB = JobSpec(
    entry=("train.py", "--lr", "3"),
    participants=RECIPE_JOB.participants,
    files={"train.py": "learn = 1\n"},
)


@pytest.fixture
def job(cluster) -> StandInJob:
    (found,) = cluster._jobs.values()
    return found


@pytest.fixture
def stored(job):
    """The cluster's job, with this spec and state of its parts."""

    def become(spec: JobSpec, saved_step: int | None = 400) -> StandInJob:
        view = job.view()
        parts = tuple(msgspec.structs.replace(one, saved_step=saved_step) for one in view.parts)
        view = msgspec.structs.replace(view, spec=spec, parts=parts)
        job.view = lambda: view
        return job

    return become


@pytest.fixture
def resume(do, cluster, tmp_path, text):
    """Run the verb; the spec that was launched, and what was said."""

    def resume(*words: str, **changes) -> tuple[JobSpec, str]:
        screen = Paper()
        do("resume", *words, directory=tmp_path, screen=screen, **changes)
        return cluster.launches[-1], "\n".join(map(text, screen.said))

    return resume


def test_it_goes_on_with_the_same_job_and_says_from_where(resume, stored):
    spec, said = resume(stored(RECIPE_JOB).id)
    assert spec.origin is not None
    assert not spec.origin.is_branch
    assert msgspec.structs.replace(spec, origin=None, chosen={}) == RECIPE_JOB
    assert says("from step 400", said)
    assert "ago)" in said
    assert "changed" not in said


def test_an_acknowledgment_of_mixed_versions_is_for_one_launch(resume, stored):
    job = stored(msgspec.structs.replace(RECIPE_JOB, mixed_versions=True))
    assert not resume(job.id)[0].mixed_versions
    assert resume(job.id, "--mixed-versions")[0].mixed_versions


def test_what_is_changed_is_named_before_the_start(resume, stored):
    job = stored(RECIPE_JOB)
    spec, said = resume(job.id, "--steps", "800", "--member", "wopr:3", "--name", "more")
    assert spec.entry[-2:] == ("--set", "train.steps=800")
    assert (spec.world_size, spec.name) == (3, "more")
    assert says("train.steps 500 → 800", said)
    assert says("ranks 2 → 3", said)
    assert says("other losses", said)


def test_a_plan_stays_unless_another_is_asked_for(do, tmp_path, text):
    recipe = '[model]\npreset = "llama-tiny"\nlayers = 6\n[pipeline]\nschedule = "1f1b"\n'
    spec = msgspec.structs.replace(
        RECIPE_JOB,
        files={"recipe.toml": recipe + "microbatches = 4\n"},
        chosen={"pipeline.split": "[5, 1]", "memory.checkpointing": "none"},
    )

    def resumed(*words: str) -> tuple[JobSpec, str]:
        job = StandInJob(sample_job({"wopr": 1, "muthur": 1}, traced=(3, 5, 10), plan=plan_of()))
        view = msgspec.structs.replace(job.view(), spec=spec)
        job.change_view(view)
        cluster, screen = StandInCluster([node("wopr", 1), node("muthur", 2)], [job]), Paper()
        do("resume", job.id, *words, on=cluster, directory=tmp_path, screen=screen)
        return cluster.launches[-1], "\n".join(map(text, screen.said))

    kept, _ = resumed()
    assert kept.chosen["pipeline.split"] == "[5, 1]"
    planned, said = resumed("--replan")
    # The nodes are alike, and the last stage also has the head.
    assert planned.chosen["pipeline.split"] == "[4, 2]"
    assert "pipeline.split [5, 1] → [4, 2]" in said


def test_a_new_plan_needs_a_job_that_had_one(resume, stored):
    with pytest.raises(SpecError, match=wording("has no plan")):
        resume(stored(RECIPE_JOB).id, "--replan")


def test_a_step_or_a_path_begins_a_new_run(resume, stored):
    job = stored(RECIPE_JOB)
    spec, said = resume(job.id, "--from", "200")
    assert spec.origin is not None
    assert (spec.origin.is_branch, spec.origin.step) == (True, 200)
    assert says("starting a new run", said)
    spec, said = resume(job.id, "--from", "best")
    assert spec.origin is not None
    assert (spec.origin.is_branch, spec.origin.step, spec.origin.path) == (True, 200, None)
    spec, said = resume(job.id, "--from", "/kept/step-00000200")
    assert job.calls[-1] == ("plan_resume", "/kept/step-00000200")
    assert "/kept" in said
    assert job.view().run not in said.partition("\n")[0], "another run may have saved it"


def test_a_script_keeps_its_arguments_or_gets_others(resume, stored):
    job = stored(SCRIPT_JOB)
    assert resume(job.id)[0].entry == SCRIPT_JOB.entry
    assert resume(job.id, "--", "--lr", "4")[0].entry == ("train.py", "--lr", "4")
    with pytest.raises(SpecError, match=wording("--steps 9: .*runs a script")):
        resume(job.id, "--steps", "9")
    with pytest.raises(SpecError):
        resume(job.id, "--wait", "--detach")


def test_programs_are_told_what_was_resumed(do, stored, tmp_path, as_json):
    job = stored(RECIPE_JOB)
    data = as_json(do("resume", job.id, "--steps", "800", directory=tmp_path))
    assert (data["resumes"], data["from_step"], data["run"]) == (job.id, 400, job.id)
    assert data["changes"][0]["name"] == "train.steps"
    assert data["changes"][0]["effect"] == "other"
    follows = data["changes"][1]
    assert (follows["name"], follows["is_automatic"]) == ("optimizer.warmup_steps", True)


def test_programs_are_told_which_directory_was_named_in_place_of_a_run(
    do, stored, tmp_path, as_json
):
    job = stored(RECIPE_JOB)
    data = as_json(do("resume", job.id, "--from", "/kept", directory=tmp_path))
    assert (data["resumes"], data["from_path"]) == (job.id, "/kept")
    assert (data["run"], data["from_run"]) == (None, None)
    assert as_json(do("resume", job.id, directory=tmp_path))["from_path"] is None


def test_launching_a_job_again_says_that_it_starts_over(do, cluster, stored, tmp_path, text):
    screen = Paper()
    outcome = do("launch", stored(RECIPE_JOB).id, directory=tmp_path, screen=screen)
    assert cluster.launches[-1].origin is None
    (warning,) = (one for one in outcome.data["warnings"] if one["kind"] == Kind.STARTS_OVER)
    assert says("mntrain resume j-", warning["fix"])
    assert says("from step 400", warning["fix"])
    quiet = do("launch", stored(RECIPE_JOB, None).id, directory=tmp_path)
    assert Kind.STARTS_OVER not in [one["kind"] for one in quiet.data.get("warnings", ())]


def test_checkpoints_are_listed_with_where_they_are_and_whether_whole(do, job, text, as_json):
    outcome = do("checkpoints", job.id)
    shown = text(outcome.renderable)
    assert "wopr, muthur" in shown
    assert says("incomplete: lacks rank 1 (muthur)", shown)
    assert says("best, pinned", shown)
    assert "1.2500" in shown
    assert says("hal does not answer", shown)
    data = as_json(outcome)
    assert [one["step"] for one in data["checkpoints"]] == [400, 200]
    assert data["silent"] == ["hal"]


def test_one_checkpoint_is_deleted_or_pinned_at_a_time(do, job):
    do("checkpoints", job.id, "--delete", "200")
    do("checkpoints", job.id, "--pin", "400")
    assert job.calls == [("delete", 200), ("pin", 400)]
    with pytest.raises(SpecError):
        do("checkpoints", job.id, "--delete", "200", "--pin", "400")
    with pytest.raises(SpecError, match=wording("no job given")):
        do("checkpoints", "--delete", "200")


def test_a_checkpoint_is_copied_or_exported_where_it_was_asked(do, job, text, as_json):
    outcome = do("checkpoints", job.id, "--copy", "/far/away")
    assert as_json(outcome)["path"] == "/far/away"
    assert says(f"resume {job.id} --from /far/away", text(outcome.renderable))
    do("checkpoints", job.id, "--export", "/hf", "--step", "200", "--mixed-versions")
    do("checkpoints", job.id, "--export", "/hf", "--step", "best")
    assert job.calls == [
        ("copy", ("/far/away", None, False)),
        ("export", ("/hf", 200, True)),
        ("export", ("/hf", "best", False)),
    ]
    with pytest.raises(SpecError, match=wording("'worst' is not a whole number .* nor best")):
        do("checkpoints", job.id, "--export", "/hf", "--step", "worst")


def test_the_checkpoint_that_answers_is_named_by_its_step(job):
    assert step_words(job, None) == ()
    assert step_words(job, 400) == ("--step", "400")
    assert step_words(job, "best") == ("--step", "200")


@pytest.mark.parametrize(
    "words",
    [
        ("--copy", "/a", "--export", "/b"),
        ("--copy", "/a", "--pin", "400"),
        ("--step", "400"),
        ("--mixed-versions",),
        ("--pin", "400", "--step", "400"),
    ],
)
def test_what_is_asked_of_a_checkpoint_is_one_thing(do, job, words):
    with pytest.raises(SpecError):
        do("checkpoints", job.id, *words)
    assert job.calls == []
