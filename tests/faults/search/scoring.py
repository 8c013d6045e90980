"""Scoring: compares what was said with what is true. Pure; decides by data, never by sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tests.faults.search.case import ABOUT_JOB, CHANNELS, Accept, Statement, Truth
from tests.faults.search.vocabulary import UNKNOWN

Score = Literal["right", "partly", "unknown", "silent", "wrong", "false alarm"]
SCORES: tuple[Score, ...] = ("right", "partly", "unknown", "silent", "wrong", "false alarm")

_BEST: tuple[Score, ...] = ("right", "partly")


def score(truth: Truth, said: Sequence[Statement], state: str = "") -> Score:
    """Judge all that stands at the end of a case.

    The first thing that a person reads decides: a false headline is wrong, whatever follows it.

    Args:
        state: the job's.
    """
    found = _harmless(truth, said) if truth.is_harmless else _guilty(truth, said)
    if found == "silent" and state in truth.enough:
        return "right"
    if truth.states and found in _BEST and state not in truth.states:
        return "wrong"
    return found


def _harmless(truth: Truth, said: Sequence[Statement]) -> Score:
    strangers = [one for one in said if is_stranger(truth, one)]
    if any(is_about_job(one) for one in strangers):
        return "false alarm"
    if strangers:
        # A node that has something else is named wrong; where all is well it is an alarm.
        return "wrong" if truth.accepts else "false alarm"
    return _best(truth, said) if truth.accepts else "right"


def _guilty(truth: Truth, said: Sequence[Statement]) -> Score:
    ordered = sorted(said, key=lambda one: CHANNELS.index(one.channel))
    # What explains one of two faults may also be said of the other, as a side effect.
    told = [
        one
        for one in ordered
        if any(admits(accept, one) for accept in truth.accepts)
        or not any(admits(also, one) for also in truth.may)
    ]
    if not told:
        return "silent"
    headline = told[0]
    if is_stranger(truth, headline):
        return "wrong"
    best = _best(truth, told)
    if best == "silent":
        return "unknown" if headline.kind in UNKNOWN else "silent"
    return best


def _best(truth: Truth, said: Sequence[Statement]) -> Score:
    grades = [grade(truth, accept, one) for one in said for accept in truth.accepts]
    return next((one for one in _BEST if one in grades), "silent")


def is_stranger(truth: Truth, one: Statement) -> bool:
    """Whether a statement is true of nothing in the case."""
    if one.kind in UNKNOWN:
        return False
    known = (*truth.accepts, *truth.may)
    return not any(grade(truth, accept, one) is not None for accept in known)


def grade(truth: Truth, accept: Accept, one: Statement) -> Score | None:
    """How good a statement is; ``None`` if it is another one."""
    if not admits(accept, one):
        return None
    is_vague = one.kind in accept.vague - accept.kinds
    is_placed = (not accept.nodes or one.node is not None) and (
        not accept.ranks or one.rank is not None
    )
    is_complete = truth.exit_code is None or one.exit_code == truth.exit_code
    is_complete = is_complete and truth.evidence in one.detail
    return "right" if is_placed and is_complete and one.has_fix and not is_vague else "partly"


def admits(accept: Accept, one: Statement) -> bool:
    """Whether it is this statement; one that names no place is not false."""
    return (
        one.channel in accept.channels
        and one.kind in accept.kinds | accept.vague
        and (not accept.nodes or one.node is None or one.node in accept.nodes)
        and (not accept.ranks or one.rank is None or one.rank in accept.ranks)
    )


def is_about_job(one: Statement) -> bool:
    return one.channel in ABOUT_JOB
