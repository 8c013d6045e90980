"""Plays: jobs whose truth is known by construction, told by the real recorder on its own clock.

A play is written as a script would be: per step what each rank counts, and what is done between
steps. The truth is counted from the same script, by other code: tokens, wall time, and when the
last step will end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

from jupyter_mntrain.model.environment import METRICS_VARIABLE
from jupyter_mntrain.telemetry.recorder import Recorder

BEGIN_S = 1_000_000.0
RANKS = 2


@dataclass(frozen=True)
class Turn:
    """One step of all ranks, and what follows it.

    Args:
        seconds: of wall time.
        tokens, loss: by rank.
        evaluation_s, saving_s: after it.
        compute: share of the step in which ranks compute.
        slept_s: of it, that the second rank's machine slept: its clock stood.
        early_s: by rank, how long before its end they have finished it and go on to the next.
    """

    seconds: float
    tokens: tuple[Any, ...] = (1000, 1000)
    loss: tuple[float, ...] = (2.0, 2.0)
    evaluation_s: float = 0.0
    saving_s: float = 0.0
    compute: float = 0.5
    step: int | None = None
    slept_s: float = 0.0
    early_s: tuple[float, float] = (0.0, 0.0)

    @property
    def counted(self) -> float:
        """Its tokens, of all ranks."""
        told = [nan if one is None or one < 0 else one for one in self.tokens]
        return float(sum(told))


@dataclass(frozen=True)
class Link:
    """What each node's interface carries, and what was measured of it, in bytes per second."""

    carries: float = 1e6
    capacity: float = 2e6


@dataclass(frozen=True)
class Play:
    """A job.

    Args:
        turn: of a step number, from 1.
        total: steps that it makes; ``told`` is what it says, if that differs.
        attempts: how many steps each attempt makes before it fails, and the step of the checkpoint
            that it began from; the last one ends the job.
        gap_s: from the end of an attempt to the first step's begin of the next.
        stages: that each rank says it has; empty for replicas.
        apart_s: clock of the second rank's node next to the first one's, of the same attempt.
        driver_ahead_s: clock of who looks, next to the job's.
    """

    name: str
    turn: Callable[[int], Turn]
    total: int = 60
    told: int | None = None
    attempts: tuple[tuple[int, int], ...] = ((10**9, 0),)
    gap_s: float = 30.0
    stages: tuple[tuple[int, ...], ...] = ((), ())
    apart_s: float = 0.0
    driver_ahead_s: float = 0.0
    link: Link = Link()


@dataclass
class Done:
    """A step that has ended, as the ruler knows it."""

    attempt: int
    step: int
    begun_s: float
    ended_s: float
    tokens: float
    paused: dict[str, float]
    """What stood before it."""


@dataclass
class Played:
    """What a play has written up to a moment, and what is true then."""

    play: Play
    directory: Path
    done: list[Done] = field(default_factory=list)
    now_s: float = BEGIN_S
    slept_s: float = 0.0
    early_s: tuple[float, float] = (0.0, 0.0)
    begun: dict[int, float] = field(default_factory=dict)
    """When each attempt began."""

    def lines(self) -> Iterator[tuple[int, int, bytes]]:
        """What the ranks wrote: attempt, rank and line, in the order in which they did."""
        found = []
        for path in self.directory.glob("*/*.ndjson"):
            attempt = int(path.parent.name)
            for number, line in enumerate(path.read_bytes().splitlines()):
                found.append((attempt, number, json.loads(line)["rank"], line))
        for attempt, _, rank, line in sorted(found, key=lambda one: one[:3]):
            yield attempt, rank, line


def acts(play: Play, directory: Path) -> Iterator[Played]:
    """Play it, and stop after every step of all ranks, before what follows it."""
    played = Played(play, directory)
    for number, (most, begins) in enumerate(play.attempts, 1):
        yield from _attempt(played, number, most, begins)
        played.now_s += play.gap_s


def _attempt(played: Played, number: int, most: int, begins: int) -> Iterator[Played]:
    play = played.play
    directory = played.directory / str(number)
    played.begun[number] = played.now_s
    recorders = [
        Recorder(
            clock=partial(_clock, played, rank),
            stopwatch=partial(_clock, played, rank),
            group=lambda: None,
            environment={
                "RANK": str(rank),
                "WORLD_SIZE": str(RANKS),
                METRICS_VARIABLE: str(directory),
            },
        )
        for rank in range(RANKS)
    ]
    told = play.total if play.told is None else play.told
    for rank, recorder in enumerate(recorders):
        recorder.start(
            total_steps=told,
            stages=play.stages[rank],
            resumed_step=begins or None,
            flops_per_token=10.0,
            peak_flops_per_s=1e6,
        )
    paused: dict[str, float] = {}
    for made, step in enumerate(range(begins + 1, play.total + 1), 1):
        turn, begun_s = play.turn(step), played.now_s
        played.now_s += turn.seconds
        played.slept_s += turn.slept_s
        played.early_s = turn.early_s
        told_step = step if turn.step is None else turn.step
        for rank, recorder in enumerate(recorders):
            recorder.step(
                step=told_step,
                tokens=turn.tokens[rank],
                loss=turn.loss[rank],
                compute_s=turn.compute * turn.seconds,
            )
        played.early_s = (0.0, 0.0)
        played.done.append(Done(number, step, begun_s, played.now_s, turn.counted, paused))
        yield played
        if made >= most:
            break
        paused = {}
        if turn.evaluation_s:
            played.now_s += turn.evaluation_s
            paused["evaluation"] = turn.evaluation_s
            for recorder in recorders:
                recorder.evaluated(step, 5.0)
        if turn.saving_s:
            played.now_s += turn.saving_s
            paused["saving"] = turn.saving_s
            for recorder in recorders:
                recorder.saved(told_step)
    for recorder in recorders:
        recorder.close()


def _clock(played: Played, rank: int) -> float:
    now_s = played.now_s - played.early_s[rank]
    return now_s + rank * (played.play.apart_s - played.slept_s)


def _lengths(step: int) -> Turn:
    return Turn(1.5 if step % 5 == 0 else 0.1)


def _tokens(step: int) -> Turn:
    return Turn(0.4, (8000, 8000)) if step % 5 in {0, 2} else Turn(0.1, (100, 100))


def _pauses(step: int) -> Turn:
    after = {} if step % 10 else {"evaluation_s" if step % 20 == 0 else "saving_s": 4.0}
    return Turn(0.2, **after)


def _ranks(_: int) -> Turn:
    return Turn(0.2, (1000, 3000), (2.0, 6.0))


def _sleeps(step: int) -> Turn:
    return Turn(40.2, slept_s=40.0) if step == 5 else Turn(0.2)


def _rare(step: int) -> Turn:
    """Two replicas that meet every other step: each has a long one and a short one between."""
    return Turn(0.5, early_s=(0.4, 0.0)) if step % 2 else Turn(0.1)


def _padded(step: int) -> Turn:
    longer = 400 + 37 * (step * 7 % 11)
    return Turn(0.3, (longer, 1000 - longer // 2))


PLAYS = (
    Play("equal", lambda _: Turn(0.2)),
    Play("lengths", _lengths),
    Play("tokens", _tokens),
    Play("pauses", _pauses),
    Play("ranks", _ranks),
    Play("replicas that sync rarely", _rare),
    Play("padding", _padded, total=200),
    Play("pipeline", lambda _: Turn(0.5, (900, 900)), stages=((0,), (1,))),
    Play("restart", lambda _: Turn(0.5), total=120, attempts=((50, 0), (30, 40), (10**9, 65))),
    Play("pauses, long", _pauses, total=2500),
    Play("10,000 a second", lambda _: Turn(1e-4, (3, 5)), total=20_000),
    Play("one an hour", lambda _: Turn(3600.0), total=12),
    Play("tokens 0", lambda _: Turn(0.2, (0, 0))),
    Play("tokens NaN", lambda s: Turn(0.2, (nan if s > 20 else 10,) * 2)),
    Play("tokens negative", lambda _: Turn(0.2, (-5, 10))),
    Play("tokens of one rank", lambda _: Turn(0.2, (10, None))),
    Play("stalls", lambda s: Turn(25.0 if s % 20 == 19 else 0.3), total=90),
    Play("a node's clock is off", lambda _: Turn(0.5), apart_s=0.05),
    Play("the driver's clock is off", _pauses, driver_ahead_s=3600.0),
    Play("the driver's clock is behind", lambda _: Turn(0.2), driver_ahead_s=-86400.0),
    Play("a machine sleeps", _sleeps, total=40),
    Play("a link of 0.5 Mbit/s", lambda _: Turn(2.0), link=Link(59_000.0, 62_500.0)),
    Play("a link of 25 Gbit/s", lambda _: Turn(0.2), link=Link(2.9e9, 3.1e9)),
    Play("a link faster than measured", lambda _: Turn(0.5), link=Link(8e6, 1e6)),
    Play("wrong total", lambda _: Turn(0.2), total=60, told=20),
    Play("steps go back", lambda s: Turn(0.2, step=s if s < 30 else s - 10), told=50),
    Play("steps skip", lambda s: Turn(0.2, step=2 * s), told=120),
)
