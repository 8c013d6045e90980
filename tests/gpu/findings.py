"""Findings: what a check of the GPU acceptance has shown, and how it is judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

State = Literal["held", "failed", "skipped"]


@dataclass(frozen=True)
class Item:
    """One statement of a check.

    Attributes:
        reason: why it failed or was skipped, in one line.
        figures: what was measured, by name with its unit.
    """

    name: str
    state: State
    reason: str = ""
    figures: dict[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """A check's result: that of its items."""

    number: int
    title: str
    items: tuple[Item, ...]
    seconds: float

    @property
    def state(self) -> State:
        states = [item.state for item in self.items]
        if "failed" in states:
            return "failed"
        return "held" if "held" in states else "skipped"

    def as_data(self) -> dict[str, Any]:
        return {"state": self.state} | asdict(self)


@dataclass(frozen=True)
class Bench:
    """Where the checks run.

    Attributes:
        device: ``cuda``, or ``cpu`` to try the checks themselves.
        cards: number of GPUs of this node that torch sees.
        directory: for files of the checks.
        before: ``MODULE:FUNCTION`` that every rank calls first; for tests.
        patience_s: most of a case, for tests; ``None``: what the check says.
        until: by the monotonic clock, when the check must have ended.
    """

    device: str
    cards: int
    directory: Path
    before: str = ""
    patience_s: float | None = None
    until: float = math.inf

    @property
    def is_real(self) -> bool:
        return self.device == "cuda"


@dataclass(frozen=True)
class Check:
    """One row of the acceptance.

    Attributes:
        seconds: after which it is ended, on a GPU. Its cases have shorter limits.
        on_cpu: whether some of it also makes sense without a GPU.
    """

    number: int
    title: str
    seconds: float
    run: Callable[[Bench], Iterator[Item]]
    on_cpu: bool = False


def skipped(name: str, reason: str) -> Item:
    return Item(name, "skipped", reason)


def failed(name: str, reason: str) -> Item:
    return Item(name, "failed", reason)


def judged(name: str, problem: str | None, **figures: float | str) -> Item:
    """Held, unless there is a problem."""
    return Item(name, "failed" if problem else "held", problem or "", figures)


def error_of(found: Sequence[float], expected: Sequence[float]) -> float:
    """Largest relative difference; infinite if a number is missing or not finite."""
    if not expected or len(found) != len(expected):
        return math.inf
    errors = [
        abs(one - other) / max(abs(other), 1e-12)
        for one, other in zip(found, expected, strict=True)
    ]
    return math.inf if any(map(math.isnan, errors)) else max(errors)


def differs(what: str, found: Sequence[float], expected: Sequence[float], most: float) -> str:
    """Say where numbers differ by more than ``most`` of their value; empty if they do not."""
    if error_of(found, expected) <= most:
        return ""
    if len(found) != len(expected):
        return f"{len(found)} {what}s instead of {len(expected)}"
    worst = max(
        range(len(found)), key=lambda place: _order(error_of([found[place]], [expected[place]]))
    )
    return (
        f"the {what} of step {worst + 1} is {found[worst]:.7g} instead of {expected[worst]:.7g} "
        f"(allowed: {most:g} of it)"
    )


def _order(error: float) -> float:
    return math.inf if math.isnan(error) else error
