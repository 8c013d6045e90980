"""Loss curves: generated ones, each from a seed, and the watch's verdict on them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

from jupyter_mntrain.agent.warnings.numbers import NumberWatch
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.events import Warned, WarningOver
from jupyter_mntrain.model.records.metrics import RankStep

Curve = Callable[[random.Random], list[float]]

STEPS = 2000


def watched(
    losses: Iterable[float | None],
    norms: Iterable[float | None] = (),
    saved_step: int | None = None,
) -> list[tuple[int, Warned | WarningOver]]:
    """Every warning and its end, with the step after which it came."""
    watch, padded = NumberWatch(), [*norms]
    found = []
    for number, loss in enumerate(losses, start=1):
        norm = padded[number - 1] if number <= len(padded) else None
        step = RankStep(
            time_s=float(number), rank=Rank(0), step=number, step_s=0.1, loss=loss, grad_norm=norm
        )
        found += [(number, event) for event in watch.see(step, saved_step)]
    return found


def falling(i: int, *, begin: float = 10.5, end: float = 2.0, tau: float = 300) -> float:
    return end + (begin - end) * math.exp(-i / tau)


def pretraining(r: random.Random) -> list[float]:
    noise = r.choice([0.02, 0.2, 0.5, 1.0])
    return [falling(i) + r.gauss(0, noise) for i in range(STEPS)]


def small_batches(r: random.Random) -> list[float]:
    """Fine-tuning with a batch of 1: hardly any progress, losses between 0.5 and 5."""
    return [1.8 * math.exp(r.gauss(0, 0.35)) * (1 - 0.1 * i / STEPS) for i in range(STEPS)]


def nearly_solved(r: random.Random) -> list[float]:
    """A classifier whose loss falls to nearly 0, where single losses differ by powers of ten."""
    return [(falling(i, begin=2.3, end=1e-4)) * math.exp(r.gauss(0, 1.5)) for i in range(STEPS)]


def spiky(r: random.Random) -> list[float]:
    return [
        falling(i) + r.gauss(0, 0.1) + (6 if i % 300 < 20 and i > 300 else 0) for i in range(STEPS)
    ]


def warm_up_bump(r: random.Random) -> list[float]:
    """It rises while the learning rate warms up, and falls again."""
    return [
        falling(i) + r.gauss(0, 0.1) + 3 * math.exp(-(((i - 60) / 30) ** 2)) for i in range(STEPS)
    ]


def warm_up_from_good_weights(r: random.Random) -> list[float]:
    """Fine-tuning that unlearns a little before it learns."""
    return [
        2.0 - 0.4 * i / STEPS + 0.5 * math.exp(-(((i - 80) / 40) ** 2)) + r.gauss(0, 0.15)
        for i in range(STEPS)
    ]


def around_zero(r: random.Random) -> list[float]:
    """As a policy's loss in reinforcement learning."""
    return [-0.05 + r.gauss(0, 0.1) for _ in range(STEPS)]


def overfitted_then_new_data(r: random.Random) -> list[float]:
    """Each epoch begins with a step up, as when the data changes in difficulty."""
    return [falling(i) + 0.3 * (i // 500 % 2) + r.gauss(0, 0.1) for i in range(STEPS)]


def plateau(r: random.Random) -> list[float]:
    return [6.9 + r.gauss(0, 0.05) for _ in range(STEPS)]


HEALTHY: tuple[Curve, ...] = (
    pretraining,
    small_batches,
    nearly_solved,
    spiky,
    warm_up_bump,
    warm_up_from_good_weights,
    around_zero,
    overfitted_then_new_data,
    plateau,
)


def blown_up(r: random.Random) -> list[float]:
    """The learning rate is too high: it stays near the loss of random weights."""
    return [
        falling(i) + r.gauss(0, 0.1) if i < 1000 else 7.5 + r.gauss(0, 0.3) for i in range(STEPS)
    ]


def slowly_rising(r: random.Random) -> list[float]:
    return [falling(min(i, 1000)) + max(0, i - 1000) * 0.01 + r.gauss(0, 0.1) for i in range(STEPS)]


def unlearned(r: random.Random) -> list[float]:
    """Fine-tuning that ruins a model which was good from the start."""
    return [(1.9 if i < 400 else 6.0) + r.gauss(0, 0.3) for i in range(STEPS)]


def exploding(r: random.Random) -> list[float]:
    return [falling(i) + math.exp(max(0, i - 1200) / 20) + r.gauss(0, 0.1) for i in range(1500)]


DIVERGED: tuple[tuple[Curve, int], ...] = (
    (blown_up, 1000),
    (slowly_rising, 1000),
    (unlearned, 400),
    (exploding, 1200),
)
"""Curves, and the step at which each begins to."""
