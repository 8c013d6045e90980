"""Mechanism: one way in which things break; how it is drawn, what is then true, how it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from tests.faults.search.case import Case, Layout, Moment, Stratum, Truth

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage

Parameters = dict[str, Any]

RUNS: tuple[Moment, ...] = ("steps", "steps", "steps", "save", "before step 1", "restart")
"""When a rank may fail; mostly between two steps."""

WORDS = ("label", "batch", "tensor", "shard", "token", "epoch", "vocabulary", "weight")
"""What messages are about."""


class Setting(msgspec.Struct, frozen=True):
    """What has been drawn before a mechanism draws its own parameters."""

    chance: Random
    layout: Layout
    moment: Moment
    guilty: str
    rank: int

    @property
    def other(self) -> str:
        return next(name for name in self.layout.names if name != self.guilty)


class Drawn(msgspec.Struct, frozen=True):
    """A mechanism's parameters, and what is true with them."""

    truth: Truth
    parameters: Parameters = {}
    exits_0: bool = False
    unforeseeable: str = ""
    """Why nobody can know of it before a launch, though it is in place then."""


Act = Callable[["Stage", Case, Parameters], AbstractContextManager[None]]


class Mechanism(msgspec.Struct, frozen=True):
    """One row of the grammar.

    Args:
        act: makes it happen; the end of its block mends it.
        pairs: may follow a distraction.
        distracts: does no harm, and may come before another fault.
        spoils: the job is useless afterward, even if it seems to run.
        slows: makes a job slower than it was: it has to have run for a while.
        cuts: nobody reaches the guilty node over one of its two networks.
        weight: how often it is drawn, among those of its stratum.
    """

    name: str
    stratum: Stratum
    draw: Callable[[Setting], Drawn]
    act: Act
    moments: tuple[Moment, ...] = ("steps",)
    pairs: bool = False
    distracts: bool = False
    spoils: bool = False
    slows: bool = False
    cuts: bool = False
    weight: int = 2


class Code(msgspec.Struct, frozen=True):
    """Python that the guilty rank runs, and what is then true."""

    text: str
    truth: Truth
    exits_0: bool = False
    everywhere: bool = False
    """Every rank runs it."""
    unforeseeable: str = ""
    """As of :class:`Drawn`."""


PHASES: dict[Moment, str] = {
    "launch": "import",
    "before step 1": "join",
    "steps": "step",
    "save": "save",
    "restart": "join",
    "end": "end",
}


def coded(
    name: str,
    stratum: Stratum,
    write: Callable[[Setting], Code],
    *,
    moments: tuple[Moment, ...] = ("steps",),
    pairs: bool = False,
    spoils: bool = True,
    distracts: bool = False,
    slows: bool = False,
    weight: int = 2,
) -> Mechanism:
    """A mechanism that is a piece of Python in a rank."""

    def draw(setting: Setting) -> Drawn:
        code = write(setting)
        ranks = list(range(setting.layout.world_size)) if code.everywhere else [setting.rank]
        parameters = {"code": code.text, "ranks": ranks}
        return Drawn(code.truth, parameters, code.exits_0, code.unforeseeable)

    return Mechanism(
        name,
        stratum,
        draw,
        _run_code,
        moments=moments,
        pairs=pairs,
        distracts=distracts,
        spoils=spoils,
        slows=slows,
        weight=weight,
    )


@contextmanager
def _run_code(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    attempt = 2 if case.moment == "restart" else 1
    for rank in parameters["ranks"]:
        stage.put(case.layout, rank, PHASES[case.moment], parameters["code"], attempt)
    yield
