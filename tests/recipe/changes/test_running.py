"""Running changes: what a running job takes, what it refuses, and what that does."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.errors import MntrainError, RecipeError, SpecError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.running_changes import with_changes
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import TRAINER, ChangedValue, JobSpec, RunningChange
from jupyter_mntrain.recipe.changes.running import (
    changed_values,
    changed_while_running,
    rate_notes,
)
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import CHANGEABLE, FIXED, Recipe, why_fixed
from jupyter_mntrain.recipe.stored import RECIPE_FILE, recipe_of
from tests.recipe.changes.test_exactness import names
from tests.wording import says

BASE = ("train.steps=2000", "evaluation.interval_steps=100")
STEP = 500
WSD_NOTE = (
    "then: wsd from step 1,600 to 0.0001 at step 2,000 → "
    "wsd from step 3,200 to 0.0001 at step 4,000"
)


def running(*more: str) -> Recipe:
    return parse_recipe("", (*BASE, *more))


def refusal(*settings: str, step: int = STEP, more: tuple[str, ...] = ()) -> MntrainError:
    with pytest.raises((RecipeError, SpecError)) as caught:
        changed_while_running(running(*more), settings, step=step, job_id="j-1")
    assert caught.value.fix
    return caught.value


def test_every_setting_either_changes_or_has_a_reason_why_not() -> None:
    known = set(names())
    sections = {name.partition(".")[0] for name in known}
    assert known >= CHANGEABLE
    assert FIXED.keys() <= known | sections
    assert {name for name in known if not why_fixed(name)} == CHANGEABLE


def test_what_is_given_is_taken_and_all_else_stays() -> None:
    before = running()
    settings = ("train.steps=5000", "optimizer.learning_rate=1e-4", "checkpoint.interval_steps=200")
    after = changed_while_running(before, settings, step=STEP)
    assert after == running(*settings)
    assert [str(one) for one in changed_values(before, after, settings)] == [
        "train.steps 2000 → 5000",
        "optimizer.learning_rate 0.001 → 0.0001",
        "checkpoint.interval_steps 100 → 200",
    ]


@pytest.mark.parametrize("settings", [("train.steps=3000", "train.steps=2000"), ("train.steps=9",)])
def test_of_several_values_the_last_one_counts(settings: tuple[str, ...]) -> None:
    before = running("train.steps=4000")
    after = changed_while_running(before, settings, step=5)
    (value,) = changed_values(before, after, settings)
    assert f"train.steps={value.after}" == settings[-1]


def test_what_does_not_change_is_named_with_the_reason_and_what_to_do() -> None:
    for setting in ("train.batch_size=64", "data.seed=5", "optimizer.kind=adafactor"):
        found, name = refusal(setting, "train.steps=3000"), setting.partition("=")[0]
        assert name in found.cause
        assert why_fixed(name) in found.cause
        assert says("launch another job", found.fix), "its checkpoints do not fit"
    both = refusal("memory.chunk_tokens=64", "optimizer.weight_decay=0.5")
    assert "memory.chunk_tokens" in both.cause
    assert "optimizer.weight_decay" in both.cause
    again = "mntrain resume j-1 --set memory.chunk_tokens=64 --set optimizer.weight_decay=0.5"
    assert says(again, both.fix)


def test_fields_and_values_are_checked_as_at_a_launch() -> None:
    assert says("use steps", refusal("train.stps=3").fix)
    assert says("train.steps", refusal("train.steps=many").cause)
    assert says("optimizer.warmup_steps", refusal("optimizer.warmup_steps=3000").cause)
    assert says("optimizer.power", refusal("optimizer.power=3").cause)
    assert says("section.field=value", refusal("steps=3000").cause)


def test_what_the_job_has_done_already_is_not_undone() -> None:
    assert says("train.steps = 500", refusal("train.steps=500").cause)
    assert says("mntrain stop j-1 --save", refusal("train.steps=500").fix)
    assert changed_while_running(running(), ("train.steps=501",), step=STEP).train.steps == 501
    assert refusal("train.steps=2000").fix, "that is how it is"


def test_evaluations_are_not_switched_on_or_off() -> None:
    every = "evaluation.interval_steps"
    assert f"{every} = 0" in refusal(f"{every}=0").cause
    assert f"{every} = 50" in refusal(f"{every}=50", more=(f"{every}=0",)).cause
    assert changed_while_running(running(), (f"{every}=50",), step=STEP)


@pytest.mark.parametrize(
    "setting",
    [
        "checkpoint.interval_steps=30",
        "evaluation.interval_steps=30",
        "checkpoint.interval_minutes=5",
    ],
)
def test_the_best_checkpoints_go_on_to_be_evaluated(setting: str) -> None:
    best = ("checkpoint.keep_best=2",)
    assert says("checkpoint.keep_best = 2", refusal(setting, more=best).cause)
    both = ("checkpoint.interval_steps=60", "evaluation.interval_steps=30")
    assert changed_while_running(running(*best), both, step=STEP).checkpoint.keep_best == 2


def test_replicas_that_meet_rarely_go_on_to_be_evaluated_when_they_meet() -> None:
    rarely = ("data_parallel.replicas=2", "data_parallel.sync_every=50")
    error = refusal("evaluation.interval_steps=120", more=rarely)
    assert says("use a multiple of 50, for example 100", str(error))
    settings = ("evaluation.interval_steps=150", "train.steps=2010")
    after = changed_while_running(running(*rarely), settings, step=STEP)
    assert (after.evaluation.interval_steps, after.steps) == (150, 2010)
    error = refusal("data_parallel.sync_every=100", more=rarely)
    assert says("mntrain resume j-1 --set data_parallel.sync_every=100", str(error))


def test_no_resume_is_advised_that_would_be_refused() -> None:
    rarely = ("data_parallel.replicas=2", "data_parallel.sync_every=50")
    assert says("launch another job", refusal("data_parallel.sync_every=0", more=rarely).fix)
    assert says("mntrain resume", refusal("data_parallel.replicas=4", more=rarely).fix)
    frozen = ("adapters.rank=8",)
    assert says("launch another job", refusal("train.seed=3", more=frozen).fix)


def test_a_change_that_only_pins_a_value_is_kept() -> None:
    before = running()
    settings = (f"optimizer.warmup_steps={before.warmup_steps}",)
    after = changed_while_running(before, settings, step=STEP)
    (value,) = changed_values(before, after, settings)
    assert (value.before, value.after) == ("100", "100")


@pytest.mark.parametrize(
    ("more", "settings", "told"),
    [
        ((), ("checkpoint.keep=5",), ()),
        (
            (),
            ("train.steps=4000",),
            (
                "learning rate of step 501: 0.000905 → 0.000977",
                "then: cosine to 0.0001 at step 2,000 → cosine to 0.0001 at step 4,000",
            ),
        ),
        (
            ("optimizer.schedule=wsd",),
            ("train.steps=4000",),
            (WSD_NOTE,),
        ),
        (
            ("optimizer.schedule=constant",),
            ("optimizer.learning_rate=1e-4",),
            (
                "learning rate of step 501: 0.001 → 0.0001",
                "then: constant at 0.001 → constant at 0.0001",
            ),
        ),
        (("optimizer.schedule=constant",), ("train.steps=4000",), ()),
    ],
)
def test_what_it_does_to_the_learning_rate_is_said(
    more: tuple[str, ...], settings: tuple[str, ...], told: tuple[str, ...]
) -> None:
    before = running(*more)
    after = changed_while_running(before, settings, step=STEP)
    notes = rate_notes(before, after, step=STEP)
    assert len(notes) == len(told)
    assert all(says(one, note) for one, note in zip(told, notes, strict=True))


def test_epochs_stay_as_many_steps_as_were_counted_until_steps_take_their_place() -> None:
    written = parse_recipe("", ("train.epochs=2",))
    counted = msgspec.structs.replace(written.train, steps=300)
    known = msgspec.structs.replace(written, train=counted)
    rate = ("optimizer.learning_rate=1e-4",)
    after = changed_while_running(known, rate, step=50)
    assert (after.train.epochs, after.train.steps) == (2.0, 300)
    assert changed_while_running(written, rate, step=50).train.steps is None
    assert rate_notes(written, changed_while_running(written, rate, step=50), step=50) == ()
    longer = changed_while_running(known, ("train.steps=500",), step=50)
    assert (longer.train.epochs, longer.train.steps) == (None, 500)
    assert [str(one) for one in changed_values(known, longer, ("train.steps=500",))] == [
        "train.steps 300 → 500"
    ]
    with pytest.raises(SpecError, match=r"train\.epochs"):
        changed_while_running(known, ("train.epochs=3",), step=50)


def test_what_changes_by_itself_is_said_too() -> None:
    before = running("train.steps=400")
    after = changed_while_running(before, ("train.steps=800",), step=30)
    assert "optimizer.warmup_steps 40 → 80 (auto)" in rate_notes(before, after, step=30)


def test_a_job_goes_on_with_what_was_changed() -> None:
    spec = JobSpec(
        entry=("-m", TRAINER, RECIPE_FILE, "--set", "train.steps=2000"),
        files={RECIPE_FILE: ""},
        participants=(),
        set_in={"train.steps": "panel", "data.seed": "panel"},
    )
    before = recipe_of(spec)
    assert before is not None
    after = changed_while_running(before, ("train.steps=5000",), step=STEP)
    values = changed_values(before, after, ("train.steps=5000",))
    known = with_changes(spec, (RunningChange("a", STEP, 1.0, values=values),))
    assert recipe_of(known) == after
    assert known.set_in == {"data.seed": "panel"}
    last = RunningChange("b", STEP, 2.0, values=(ChangedValue("train.steps", "5000", "3000"),))
    again = with_changes(spec, (RunningChange("a", STEP, 1.0, values=values), last))
    assert again.entry[5:] == ("--set", "train.steps=3000")
    assert with_changes(spec, ()) is spec


def test_a_script_has_no_settings_to_change() -> None:
    script = JobSpec(entry=("train.py", "--lr", "1"), participants=())
    with pytest.raises(SpecError) as caught:
        program_of(script).changed(["train.steps=2"], step=1, job_id=JobId("j-1"))
    assert "train.py" in caught.value.cause
