"""Number watch: sees every step that the ranks of an attempt report, and warns of odd ones."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from jupyter_mntrain.agent.doubts.number_rules import (
    ConstantLoss,
    Diverged,
    NotFinite,
    NumberRule,
    ZeroGradients,
)
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.not_finite import with_checkpoint
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.events import Warned, WarningOver
from jupyter_mntrain.model.records.metrics import RankStep

_SPOILS_WEIGHTS = frozenset({Kind.LOSS_NAN, Kind.LOSS_DIVERGED})


class NumberWatch:
    """Watches the losses and gradients of one attempt's ranks on one node.

    An agent that was restarted has forgotten earlier steps: it judges by those that follow.
    """

    def __init__(self) -> None:
        self._rules: dict[Rank, tuple[NumberRule, ...]] = {}

    def see(self, step: RankStep, saved_step: int | None) -> Iterator[Warned | WarningOver]:
        """Take one step of a rank. One that was skipped says nothing of the weights.

        Args:
            saved_step: step of the newest complete checkpoint.
        """
        if step.is_skipped:
            return
        rules = self._rules.get(step.rank)
        if rules is None:
            rules = (NotFinite(), Diverged(), ZeroGradients(), ConstantLoss())
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
