"""Numbers: detects losses and gradients that are too odd to be trusted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import isfinite
from statistics import median

import msgspec

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.not_finite import not_finite, with_checkpoint
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.events import Warned, WarningOver
from jupyter_mntrain.model.records.metrics import RankStep

# Number rules: when a rank's losses and gradients are too odd to be trusted. Pure.
#
# Each rule sees every step of one rank. Its ``problem`` is what is odd now, or ``None``.


BLOCK = tunables.count("numbers.diverged_steps")
LOST_SHARE = 0.5
"""The loss has diverged if more than this share of what was gained since the first block is
lost …"""
TIMES_NOISE = 6.0
"""… and it rose by more than this many standard deviations of single losses …"""
TIMES_BEST = 1.5
"""… and it is more than this many times the lowest: the same text in another language costs 1.2
times."""

NAN_STEPS = tunables.count("numbers.nan_gradient_steps")

ZERO_STEPS = tunables.count("numbers.zero_gradient_steps")

CONSTANT_STEPS = tunables.count("numbers.constant_loss_steps")

FALLEN_DB = 10.0
"""Messages in fewer bits are noisy once their noise has ten times the share that it had in the
best comparison: then a few values are so much larger than the rest that little is left of it."""

NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


class NumberRule(ABC):
    """One rule, applied to one rank."""

    problem: Problem | None = None

    @abstractmethod
    def see(self, step: RankStep) -> None:
        """Check one step, and set :attr:`problem`."""


class NotFinite(NumberRule):
    """Warns that the loss is NaN or infinite. It never clears: the weights may hold NaN from then
    on.

    A gradient counts only if it stays so: a gradient scaler for float16 makes infinite ones on
    purpose, and skips these steps. Some libraries leave NaN out of the losses that they log.
    """

    def __init__(self) -> None:
        self._bad: list[RankStep] = []

    def see(self, step: RankStep) -> None:
        if self.problem is not None:
            return
        if step.loss is not None and not isfinite(float(step.loss)):
            self.problem = not_finite("loss", float(step.loss), step.step, rank=step.rank)
        if step.grad_norm is None:
            return
        self._bad = [] if isfinite(float(step.grad_norm)) else [*self._bad, step]
        if self.problem is None and len(self._bad) >= NAN_STEPS:
            first, norm = self._bad[0], float(step.grad_norm)
            self.problem = not_finite("gradient", norm, first.step, rank=step.rank)


class Diverged(NumberRule):
    """Warns that the loss is far above its earlier level.

    Medians of blocks of :data:`BLOCK` losses are compared, so a spike of less than half a block
    changes nothing. The newest must be above the lowest by all of these:

    * more than :data:`LOST_SHARE` of what was gained since the first block: so a loss near zero
      may be many times another one near zero;
    * :data:`TIMES_NOISE` standard deviations of single losses: so noise of small batches is none;
    * :data:`TIMES_BEST` times the lowest, if that is positive: so other data may be harder.

    The first block gives the measure of what was gained, so warm-up needs no rule of its own.
    """

    def __init__(self) -> None:
        self._block: list[float] = []
        self._begin = 0
        self._first: float | None = None
        self._best = 0.0
        self._noise = 0.0

    def see(self, step: RankStep) -> None:
        if step.loss is None or not isfinite(float(step.loss)):
            return
        if not self._block:
            self._begin = step.step
        self._block.append(float(step.loss))
        if len(self._block) < BLOCK:
            return
        block, self._block = self._block, []
        now = median(block)
        if self._first is None:
            self._first = now
        elif self._is_far_above(now):
            self.problem = self.problem or self._told(now, step.rank)
            return
        else:
            self.problem = None
            if now >= self._best:
                return
        self._best = now
        self._noise = NORMAL * median(abs(one - now) for one in block)

    def _is_far_above(self, now: float) -> bool:
        assert self._first is not None  # noqa: S101
        rise = now - self._best
        return (
            rise > LOST_SHARE * (self._first - self._best)
            and rise > TIMES_NOISE * self._noise
            and (self._best <= 0 or now > TIMES_BEST * self._best)
            and rise > 0
        )

    def _told(self, now: float, rank: Rank) -> Problem:
        return Problem(
            kind=Kind.LOSS_DIVERGED,
            cause=f"the loss has diverged: its median is {now:.4g} in the {BLOCK} steps since step "
            f"{self._begin}, and was {self._best:.4g}",
            fix=fix_of(Kind.LOSS_DIVERGED, step=self._begin + BLOCK),
            rank=rank,
            step=self._begin,
        )


class ZeroGradients(NumberRule):
    """Warns that the gradient's norm is exactly 0."""

    def __init__(self) -> None:
        self._since: int | None = None
        self._count = 0

    def see(self, step: RankStep) -> None:
        if step.grad_norm is None:
            return
        if step.grad_norm != 0:
            self._since, self._count, self.problem = None, 0, None
            return
        self._since = step.step if self._since is None else self._since
        self._count += 1
        if self._count == ZERO_STEPS:
            self.problem = Problem(
                kind=Kind.ZERO_GRADIENTS,
                cause=f"the gradient has been exactly 0 since step {self._since}: nothing is "
                "learned",
                fix=fix_of(Kind.ZERO_GRADIENTS),
                rank=step.rank,
                step=self._since,
            )


class ConstantLoss(NumberRule):
    """Warns that the loss is exactly the same in every step."""

    def __init__(self) -> None:
        self._loss: float | None = None
        self._since = 0
        self._count = 0

    def see(self, step: RankStep) -> None:
        if step.loss is None or not isfinite(float(step.loss)):
            return
        if step.loss != self._loss:
            self._loss, self._since, self._count = float(step.loss), step.step, 1
            self.problem = None
            return
        self._count += 1
        if self._count == CONSTANT_STEPS:
            self.problem = Problem(
                kind=Kind.LOSS_CONSTANT,
                cause=f"the loss has been exactly {self._loss:.6g} in every step since step "
                f"{self._since}",
                fix=fix_of(Kind.LOSS_CONSTANT),
                rank=step.rank,
                step=self._since,
            )


class NoisyTransfers(NumberRule):
    """Warns that less is left of what stages send in fewer bits than of what they sent before.

    It clears once nothing of what is compared has fallen any more.
    """

    def __init__(self) -> None:
        self._best: dict[tuple[int, bool], float] = {}
        self._fallen: dict[tuple[int, bool], tuple[int, float]] = {}

    def see(self, step: RankStep) -> None:
        for one in step.compared_transfers:
            key = (one.boundary, one.is_gradient)
            best = self._best[key] = max(one.ratio_db, self._best.get(key, one.ratio_db))
            if best - one.ratio_db > FALLEN_DB:
                self._fallen.setdefault(key, (step.step, one.ratio_db))
            else:
                self._fallen.pop(key, None)
        if not self._fallen:
            self.problem = None
        elif self.problem is None:
            (boundary, is_gradient), (since, now) = next(iter(self._fallen.items()))
            what = "gradients" if is_gradient else "activations"
            stages = (boundary + 1, boundary) if is_gradient else (boundary, boundary + 1)
            self.problem = Problem(
                kind=Kind.NOISY_TRANSFERS,
                cause=f"the {what} that stage {stages[0]} sends to stage {stages[1]} in fewer bits "
                f"have {now:.0f} dB of signal to noise since step {since}, and had "
                f"{self._best[boundary, is_gradient]:.0f}",
                fix=fix_of(Kind.NOISY_TRANSFERS),
                rank=step.rank,
                step=since,
            )


# Number watch: sees every step that the ranks of an attempt report, and warns of odd ones.


_SPOILS_WEIGHTS = frozenset({Kind.LOSS_NAN, Kind.LOSS_DIVERGED})


class NumberWatch:
    """Checks the losses and gradients of one attempt's ranks on one node.

    An agent that was restarted has forgotten earlier steps: it judges by those that follow.
    """

    def __init__(self) -> None:
        self._rules: dict[Rank, tuple[NumberRule, ...]] = {}

    def see(self, step: RankStep, saved_step: int | None) -> Iterator[Warned | WarningOver]:
        """Check one step of a rank. A skipped step says nothing about the weights.

        Args:
            saved_step: step of the newest complete checkpoint.
        """
        if step.is_skipped:
            return
        rules = self._rules.get(step.rank)
        if rules is None:
            rules = (NotFinite(), Diverged(), ZeroGradients(), ConstantLoss(), NoisyTransfers())
            self._rules[step.rank] = rules
        for rule in rules:
            before = rule.problem
            rule.see(step)
            now = rule.problem
            if now is not None and before is None:
                if now.kind in _SPOILS_WEIGHTS:
                    now = with_checkpoint(now, saved_step)
                yield Warned(problem=msgspec.structs.replace(now, time_s=step.time_s))
            elif before is not None and now is None:
                yield WarningOver(kind=before.kind, rank=step.rank)
