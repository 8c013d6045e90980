"""Collectives: compares the ranks' calls of torch.distributed, and names the call that differs.
Pure.

The ranks of a process group make the same collectives in the same order, each with its number. So
the first number at which names, shapes or dtypes differ is where they lost each other, however
long ago that was and wherever they wait now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jupyter_mntrain.model.failure.calls import Call
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import RankStack


class Caller(NamedTuple):
    """A rank with its current stack."""

    node: str
    stack: RankStack

    @property
    def place(self) -> str:
        return f"rank {self.stack.rank} on {self.node}"


class _Made(NamedTuple):
    caller: Caller
    call: Call

    @property
    def at(self) -> str:
        """The script's line, if the rank is still in that call."""
        where = self.caller.stack.where
        return f", in {where}" if where and not self.call.is_over else ""


def mismatched_call(ranks: Sequence[Caller]) -> Problem | None:
    """Find the first call in which the ranks of a group differ; ``None`` if there is none."""
    for members in _groups(ranks):
        made = [{call.seq: _Made(caller, call) for call in calls} for caller, calls in members]
        made = [calls for calls in made if calls]
        if len(made) < 2:
            continue
        first = max(min(calls) for calls in made)
        for seq in sorted({seq for calls in made for seq in calls if seq >= first}):
            here = [calls[seq] for calls in made if seq in calls]
            if problem := _names(here) or _tensors(here):
                return problem
    return None


def missing_call(ranks: Sequence[Caller]) -> Problem | None:
    """Find a call that a rank of the group has not made although it has finished all earlier ones.

    This explains a stall only if all ranks wait and links work.
    """
    for members in _groups(ranks):
        reached = [(_Made(caller, calls[-1])) for caller, calls in members if calls]
        newest = max((one.call.seq for one in reached), default=0)
        wait = [one for one in reached if one.call.seq == newest and not one.call.is_over]
        missing = [one for one in reached if one.call.seq < newest and one.call.is_over]
        if wait and missing:
            late, waits = missing[0], wait[0]
            elsewhere = late.caller.stack.where
            cause = (
                f"has not called {waits.call.said}, which {waits.caller.place} waits in{waits.at}"
            )
            cause += f"; it waits in {elsewhere}" if elsewhere else ""
            return _problem(late.caller, cause)
    return None


def _groups(ranks: Sequence[Caller]) -> Iterator[list[tuple[Caller, tuple[Call, ...]]]]:
    """Yield the members of every group that have answered."""
    found: dict[tuple[str, str], list[tuple[Caller, tuple[Call, ...]]]] = {}
    for caller in ranks:
        for one in caller.stack.calls:
            found.setdefault((one.group, one.backend), []).append((caller, one.calls))
    yield from found.values()


def _names(here: Sequence[_Made]) -> Problem | None:
    """Find ranks that made a different call, which is always wrong."""
    if len({one.call.name for one in here}) == 1:
        return None
    return _told(here, [one.call.name for one in here])


def _tensors(here: Sequence[_Made]) -> Problem | None:
    """Find ranks whose tensors have other shapes, unless all calls finished: NCCL can gather uneven
    shapes.
    """
    shapes = [one.call.tensors for one in here]
    if len(set(shapes)) == 1 or all(one.call.is_over for one in here):
        return None
    return _told(here, shapes)


def _told(here: Sequence[_Made], versions: Sequence[str]) -> Problem:
    counts = Counter(versions)
    rarest = min(counts.values())
    # Of two ranks neither is the wrong one: the later one is told first, and no one is blamed.
    odd = max(
        (one for one, version in zip(here, versions, strict=True) if counts[version] == rarest),
        key=lambda one: one.caller.stack.rank,
    )
    version = versions[here.index(odd)]
    others = [one for one, other in zip(here, versions, strict=True) if other != version]
    usual = next(
        one
        for one in others
        if counts[versions[here.index(one)]] == max(counts[v] for v in counts if v != version)
    )
    told = f"called {odd.call.said}{odd.at}"
    if len(here) == len(others) + 1 and len(others) > 1:
        return _problem(odd.caller, f"{told}, the others {usual.call.said}{usual.at}")
    cause = f"{odd.caller.place} {told}, but {usual.caller.place} {usual.call.said}{usual.at}"
    return _problem(None, cause)


def _problem(who: Caller | None, cause: str) -> Problem:
    rank: Rank | None = who.stack.rank if who else None
    return Problem(
        kind=Kind.COLLECTIVE_MISMATCH,
        cause=cause,
        fix=fix_of(Kind.COLLECTIVE_MISMATCH),
        node=who.node if who else None,
        rank=rank,
    )
