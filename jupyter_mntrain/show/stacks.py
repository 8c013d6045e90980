"""Stacks for display: what each rank is doing, its stacks, and how its collective calls differ.

One form for terminal, notebook and page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.causes.collectives import Caller, mismatched_call
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.sites import WaitingRank, doing_there
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import TERMINAL, JobView, RankStack

NO_STACK = (
    "No stack: it has not started its script, is stopped or in a system call, or its Python "
    "ignores PYTHONPATH."
)


class ShownStack(Record, frozen=True):
    """The stack of one rank.

    Args:
        said: ``rank 1 on node2 is in a barrier, in save (train.py:12)``.
        text: of its main thread, or why there is none.
        threads: of its other threads.
    """

    node: str
    rank: Rank
    said: str
    text: str
    threads: str = ""


class ShownStacks(Record, frozen=True):
    """The stacks of a job's ranks.

    Args:
        problem: a collective that they called differently.
        silent: why a node did not answer.
        nothing: why there is no rank to show; empty if there is one, or a silent node.
    """

    ranks: tuple[ShownStack, ...]
    problem: Problem | None = None
    silent: tuple[Problem, ...] = ()
    nothing: str = ""


def shown_stacks(
    view: JobView, answers: Mapping[str, Sequence[RankStack] | MntrainError], rank: int | None
) -> ShownStacks:
    """Prepare what :meth:`Job.stacks` found for display.

    Args:
        rank: the only one that was asked.
    """
    found = [
        (node, stack)
        for node, said in answers.items()
        if not isinstance(said, MntrainError)
        for stack in said
    ]
    silent = tuple(said.problem for said in answers.values() if isinstance(said, MntrainError))
    return ShownStacks(
        ranks=tuple(_shown(node, stack) for node, stack in found),
        problem=mismatched_call([Caller(node, stack) for node, stack in found]),
        silent=silent,
        nothing="" if found or silent else _why_none(view, rank),
    )


def stacks_text(shown: ShownStacks) -> str:
    """Return everything as plain text, except for other threads."""
    problems = [*([shown.problem] if shown.problem else []), *shown.silent]
    ranks = [f"{one.said}\n{one.text}" for one in shown.ranks]
    return "\n\n".join([*map(str, problems), *filter(None, [shown.nothing]), *ranks])


def _why_none(view: JobView, rank: int | None) -> str:
    if view.state in TERMINAL:
        return f"{view.job_id} has ended: see its log for what its ranks printed"
    what = "no rank" if rank is None else f"rank {rank}"
    verb = "runs" if rank is None else "does not run"
    return f"{what} of {view.job_id} {verb} on a reachable node now"


def _shown(node: str, stack: RankStack) -> ShownStack:
    *others, main = stack.text.strip().split("\n\n")
    return ShownStack(
        node=node,
        rank=stack.rank,
        said=_said(node, stack),
        text=main or NO_STACK,
        threads="\n\n".join(others),
    )


def _said(node: str, stack: RankStack) -> str:
    if stack.site is not None:
        return doing_there(WaitingRank(stack.rank, node, stack.site, stack.where))
    # The words of the verdict (Kind.BUSY): it may as well sleep, or wait for a lock of its own.
    doing = "in its own code" if stack.doing == "busy" else stack.doing
    where = f", {stack.where}" if stack.where else ""
    return f"rank {stack.rank} on {node}: {doing}{where}"
