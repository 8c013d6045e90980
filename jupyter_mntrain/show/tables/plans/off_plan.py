"""Off plan: why a step is slower or faster than predicted, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text

from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.show import formats

if TYPE_CHECKING:
    from jupyter_mntrain.metrics.summary import OffPlan, OffPlanCause

MOST_CAUSES: Final = 3
FACTOR_FROM: Final = 2.0
"""From twice as long on, a difference is shown as a factor."""


def predicted_line(step_s: float, off: OffPlan | None) -> Text:
    """Say what step time a plan predicted, how far off it is, and why."""
    line = Text(f"predicted: {formats.seconds(step_s)} per step", "dim")
    if off is not None:
        line.append(f"; it is {_against(off.ratio)}: {_why(off)}")
    return line


def _why(off: OffPlan) -> str:
    if not off.causes:
        return "ranks wait longer" if off.ratio > 1 else "ranks wait less"
    said = [_words(one) for one in off.causes[:MOST_CAUSES]]
    more = len(off.causes) - MOST_CAUSES
    return "; ".join(said) + (f"; and {more} more" if more > 0 else "")


def _words(cause: OffPlanCause) -> str:
    guessed = " (its speed was guessed)" if cause.is_guessed else ""
    match cause.kind:
        case "computing":
            return f"rank {cause.rank} computes {_against(cause.ratio)} than planned{guessed}"
        case "link":
            took, planned = formats.latency(cause.took_s), formats.latency(cause.planned_s)
            messages = f"messages from rank {cause.rank} to rank {cause.peer}"
            return f"{messages} take {took}, planned {planned}{guessed}"
        case "traffic":
            used = formats.percent(cause.ratio, 0)
            return f"others use {used} of the link of {shown_line(cause.node or '')}"


def _against(ratio: float) -> str:
    """Format a ratio: ``25 % slower`` or ``3.1 × slower``; half the time is twice as fast."""
    word, factor = ("slower", ratio) if ratio >= 1 else ("faster", 1 / ratio if ratio else 0.0)
    if factor >= FACTOR_FROM:
        return f"{formats.fixed(factor, 1)}{formats.SPACE}× {word}"
    return f"{formats.percent(factor - 1, 0)} {word}"
