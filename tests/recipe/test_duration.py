"""Duration: epochs in place of steps."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.changes.exactness import changed_settings
from jupyter_mntrain.recipe.changes.settings import settings_of_recipe
from jupyter_mntrain.recipe.learning_rate import ratio_at, with_steps
from jupyter_mntrain.recipe.parse import parse_recipe, refuse_both_durations
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.recipe.stored import resolved
from tests.wording import wording

THREE = ("train.epochs=3",)


@pytest.mark.parametrize(
    ("epochs", "sequences", "batch", "steps"),
    [
        ("3", 1000, 32, 94),
        ("2.5", 64, 32, 5),
        ("0.1", 300, 10, 3),  # 0.1 * 300 is a little more than 30
        ("0.3", 10, 1, 3),
        ("0.001", 5, 32, 1),
        ("1", 1, 1, 1),
    ],
)
def test_epochs_are_steps_once_the_sequences_are_known(
    epochs: str, sequences: int, batch: int, steps: int
) -> None:
    written = parse_recipe("", [f"train.epochs={epochs}", f"train.batch_size={batch}"])
    assert written.train.steps is None
    known = with_steps(written, sequences)
    assert (known.steps, known.train.epochs) == (steps, float(epochs))
    assert msgspec.convert(msgspec.to_builtins(known), Recipe) == known


def test_steps_stay_whatever_the_data_is() -> None:
    assert with_steps(Recipe(), 7) == Recipe()


def test_the_learning_rate_ends_with_the_last_step_of_the_last_epoch() -> None:
    known = with_steps(parse_recipe("", [*THREE, "train.batch_size=10"]), 100)
    rates = [ratio_at(known, step) for step in range(known.steps)]
    assert known.warmup_steps == 3
    assert rates[-1] == pytest.approx(known.optimizer.min_ratio)
    assert max(rates) == rates[known.warmup_steps] == 1.0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (("train.epochs=1000000", "train.batch_size=1"), "1,000,000,000 steps, and a run makes at"),
        (
            (*THREE, "optimizer.warmup_steps=200"),
            "optimizer.warmup_steps = 200: more than the steps of 3 epochs. Fix: use at most 94",
        ),
        (
            (*THREE, "optimizer.schedule=wsd", "optimizer.decay_share=0.95"),
            "and the warm-up of 9 leaves 85. Fix: use at most 0.9, or more steps",
        ),
    ],
)
def test_what_only_the_data_can_refuse_is_one_line(changes: tuple[str, ...], told: str) -> None:
    written = parse_recipe("", changes)
    with pytest.raises(RecipeError, match=wording(told)):
        with_steps(written, 1000)


def test_the_last_override_replaces_what_was_before() -> None:
    assert parse_recipe("[train]\nsteps = 5", THREE).train.steps is None
    back = parse_recipe("", [*THREE, "train.steps=7"]).train
    assert (back.steps, back.epochs) == (7, None)


def test_both_at_once_are_refused() -> None:
    refuse_both_durations(["train.epochs=3", "train.batch_size=4"])
    with pytest.raises(RecipeError, match=wording("both given")):
        refuse_both_durations(["train.epochs=3", "train.steps = 5"])


def test_the_steps_of_epochs_are_shown_as_not_decided_yet() -> None:
    shown = {one.name: one for one in settings_of_recipe("[train]\nsteps = 5", THREE)}
    steps, warmup = shown["train.steps"], shown["optimizer.warmup_steps"]
    assert (steps.value, steps.origin, steps.chosen) == (None, "auto", None)
    assert (warmup.origin, warmup.chosen) == ("auto", None)
    assert (shown["train.epochs"].value, shown["train.epochs"].origin) == (3.0, "--set")


def test_what_the_devices_decide_leaves_the_epochs_as_they_are() -> None:
    written = parse_recipe("", [*THREE, "train.batch_size=30"])
    for recipe in (written, with_steps(written, 1000)):
        kept = resolved(recipe, {"model.dtype": "float32"})
        assert kept.train == recipe.train


def test_a_checkpoints_settings_are_those_of_the_recipe_it_was_saved_by() -> None:
    written = parse_recipe("", THREE)
    assert changed_settings(with_steps(written, 1000), written, step=50) == ()
    more = parse_recipe("", ["train.epochs=5"])
    (change,) = changed_settings(with_steps(written, 1000), more, step=50)
    assert str(change) == "train.epochs 3.0 → 5.0"


def test_replicas_that_met_after_the_last_step_of_their_epochs_go_on_otherwise() -> None:
    """A longer run would not have met there; of epochs whose steps are not known, it may be so."""
    flat = ("optimizer.schedule=constant", "optimizer.warmup_steps=1")
    rarely = (*flat, "data_parallel.replicas=2", "data_parallel.sync_every=8")
    written = parse_recipe("", [*THREE, *rarely])
    counted = with_steps(written, 1000)
    more = parse_recipe("", ["train.epochs=5", *rarely])
    last = counted.train.steps
    assert last is not None
    assert last % 8

    def effect(before: Recipe, step: int) -> str:
        (change,) = changed_settings(before, more, step=step)
        return change.effect

    assert (effect(counted, last), effect(counted, last - 1)) == ("other", "none")
    assert (effect(written, last), effect(written, 16)) == ("other", "none")
