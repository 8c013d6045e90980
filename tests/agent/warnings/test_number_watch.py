"""Number watch: warns of numbers that no good training has, and of no others."""

from __future__ import annotations

import json
import math
import random
from itertools import chain, repeat
from pathlib import Path

import pytest

from jupyter_mntrain.agent.warnings.numbers import (
    BLOCK,
    CONSTANT_STEPS,
    NAN_STEPS,
    ZERO_STEPS,
    NumberWatch,
)
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.events import Warned, WarningOver
from jupyter_mntrain.model.records.metrics import ComparedTransfer, RankStep
from tests.agent.warnings.curves import DIVERGED, HEALTHY, STEPS, Curve, watched
from tests.wording import says

SEEDS = range(20)

RECORDED = json.loads((Path(__file__).parent / "recorded_losses.json").read_text())
"""Losses of the built-in trainer, see ``note`` in the file."""


def kinds(events: list[tuple[int, Warned | WarningOver]]) -> list[Kind]:
    return [event.problem.kind for _, event in events if isinstance(event, Warned)]


@pytest.mark.parametrize("curve", HEALTHY, ids=lambda one: one.__name__)
def test_no_warning_of_a_healthy_curve(curve: Curve) -> None:
    for seed in SEEDS:
        assert watched(curve(random.Random(seed))) == [], f"seed {seed}"


@pytest.mark.parametrize("name", [name for name in RECORDED if name.startswith("healthy")])
def test_no_warning_of_a_recorded_healthy_run(name: str) -> None:
    assert watched(RECORDED[name]) == []


@pytest.mark.parametrize("name", [name for name in RECORDED if name.startswith("diverged")])
def test_a_recorded_run_that_diverged_is_seen(name: str) -> None:
    assert {*kinds(watched(RECORDED[name]))} == {Kind.LOSS_DIVERGED}


@pytest.mark.parametrize(("curve", "begin"), DIVERGED, ids=lambda one: getattr(one, "__name__", ""))
def test_a_curve_that_diverges_is_seen_once_and_in_time(curve: Curve, begin: int) -> None:
    for seed in SEEDS:
        (step, event), *others = watched(curve(random.Random(seed)))
        assert isinstance(event, Warned)
        assert event.problem.kind is Kind.LOSS_DIVERGED
        late = 500 if curve.__name__ == "slowly_rising" else 4 * BLOCK
        assert begin < step <= begin + late, f"seed {seed}"
        assert not others, f"seed {seed}"


def test_a_loss_that_comes_back_is_no_longer_warned_of() -> None:
    losses = [*repeat(2.0, 400), *repeat(9.0, 4 * BLOCK), *repeat(2.0, 4 * BLOCK)]
    noisy = [loss + 0.01 * math.sin(n) for n, loss in enumerate(losses)]
    (_, warned), (_, over) = watched(noisy)
    assert isinstance(warned, Warned)
    assert over == WarningOver(kind=Kind.LOSS_DIVERGED, rank=Rank(0))


@pytest.mark.parametrize(("value", "word"), [(math.nan, "NaN"), (math.inf, "infinite")])
def test_the_first_loss_that_is_not_finite_is_named_with_its_step(value: float, word: str) -> None:
    ((step, event),) = watched([2.0, 1.9, value, value, 2.0], saved_step=1)
    assert isinstance(event, Warned)
    problem = event.problem
    assert (step, problem.kind, problem.step, problem.rank) == (3, Kind.LOSS_NAN, 3, 0)
    assert problem.time_s == 3.0
    assert says(f"rank 0: the loss became {word} at step 3.", problem.headline)
    assert says("the checkpoint of step 1 is good", problem.fix)


def test_infinite_gradients_at_first_are_what_a_gradient_scaler_makes() -> None:
    losses = [2.0 - n / 1000 for n in range(200)]
    assert watched(losses, [math.inf if n < 17 or n % 50 == 0 else 1.0 for n in range(200)]) == []


def test_a_gradient_that_stays_nan_is_told_even_if_the_loss_is_not() -> None:
    """transformers' Trainer leaves NaN out of the losses that it logs."""
    losses = [2.0 - n / 1000 for n in range(100)]
    ((step, event),) = watched(losses, [1.0] * 10 + [math.nan] * 90)
    assert isinstance(event, Warned)
    assert (event.problem.kind, event.problem.step) == (Kind.LOSS_NAN, 11)
    assert step == 10 + NAN_STEPS


def test_gradients_of_zero_are_seen_and_forgotten() -> None:
    norms = [1.0, *repeat(0.0, ZERO_STEPS + 3), 0.5]
    (step, warned), (end, over) = watched([2.0 - n / 100 for n in range(len(norms))], norms)
    assert isinstance(warned, Warned)
    assert (step, warned.problem.kind, warned.problem.step) == (
        1 + ZERO_STEPS,
        Kind.ZERO_GRADIENTS,
        2,
    )
    assert isinstance(over, WarningOver)
    assert end == len(norms)


def test_a_few_zeros_are_batches_without_labels() -> None:
    norms = list(chain.from_iterable([*repeat(0.0, ZERO_STEPS - 1), 1.0] for _ in range(20)))
    assert watched([2.0 - n / 1000 for n in range(len(norms))], norms) == []


def test_a_loss_that_never_changes_is_seen() -> None:
    ((step, event),) = watched([2.5, *repeat(0.6931, CONSTANT_STEPS + 50)])
    assert isinstance(event, Warned)
    assert (step, event.problem.kind) == (1 + CONSTANT_STEPS, Kind.LOSS_CONSTANT)
    assert event.problem.step == 2


def test_losses_rounded_to_four_digits_are_not_constant() -> None:
    r = random.Random(0)
    assert watched([round(0.0003 + abs(r.gauss(0, 0.0001)), 4) for _ in range(STEPS)]) == []


def test_messages_that_become_noisy_are_told_by_stage_and_direction() -> None:
    watch = NumberWatch()

    def seen(number: int, forth: float, back: float) -> list[Warned | WarningOver]:
        made = (
            ComparedTransfer(2, ratio_db=forth),
            ComparedTransfer(1, is_gradient=True, ratio_db=back),
        )
        step = RankStep(time_s=1.0, rank=Rank(3), step=number, step_s=1.0, compared_transfers=made)
        return [*watch.see(step, None)]

    assert not [*seen(1, 40.0, 17.0), *seen(21, 42.0, 16.0), *seen(41, 33.0, 9.0)]
    (warned,) = seen(61, 31.0, 8.0)
    assert isinstance(warned, Warned)
    problem = warned.problem
    assert (problem.kind, problem.rank, problem.step) == (Kind.NOISY_TRANSFERS, 3, 61)
    assert says("activations that stage 2 sends to stage 3", problem.cause)
    assert says("31 dB", problem.cause)
    assert says("had 42", problem.cause)
    assert seen(81, 31.0, 8.0) == []
    assert seen(101, 36.0, 4.0) == [], "the other one has fallen meanwhile"
    (over,) = seen(121, 36.0, 14.0)
    assert over == WarningOver(kind=Kind.NOISY_TRANSFERS, rank=Rank(3))
    (warned,) = seen(141, 36.0, 2.0)
    assert isinstance(warned, Warned)
    assert says("gradients that stage 2 sends to stage 1", warned.problem.cause)


def test_steps_without_a_loss_say_nothing() -> None:
    assert watched(repeat(None, STEPS)) == []
