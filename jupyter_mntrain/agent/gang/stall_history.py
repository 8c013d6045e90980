"""Stall history: the stalls of a job, each with the cause that it had. Pure."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.model.failure.diagnosis import UNEXPLAINED
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.episode import Episode


def with_stall(
    known: tuple[Episode, ...], stall: Problem | None, now_s: float
) -> tuple[Episode, ...]:
    """The episodes after a look.

    A stall with another cause is another one: the first is over. One that nothing explained has its
    cause by then.

    Args:
        stall: what stalls the job now, if anything does.
        now_s: Unix time, by the clock of the attempt.
    """
    current = next((one for one in known if one.is_stall and one.end_s is None), None)
    others = tuple(one for one in known if one is not current)
    if stall is None:
        return known if current is None else (*others, current.ended(now_s))
    if current is None:
        return (*known, _episode(stall))
    before = current.problem
    if before.kind in UNEXPLAINED or _place(before) == _place(stall):
        told = msgspec.structs.replace(stall, time_s=before.time_s)
        return known if told == before else (*others, _episode(told))
    began = msgspec.structs.replace(stall, time_s=stall.seen_s or now_s)
    return (*others, current.ended(now_s), _episode(began))


def _episode(stall: Problem) -> Episode:
    words = " ".join(("stalled:", stall.place, stall.kind.replace("-", " ")))
    return Episode(problem=stall, label=" ".join(words.split()), is_stall=True)


def _place(problem: Problem) -> tuple[object, ...]:
    return problem.kind, problem.node, problem.rank
