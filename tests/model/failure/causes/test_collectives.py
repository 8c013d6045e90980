"""Collectives: the call that differs, from what ranks recorded."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.failure.calls import Call, GroupCalls
from jupyter_mntrain.model.failure.causes.collectives import Caller, mismatched_call, missing_call
from jupyter_mntrain.model.failure.diagnosis import diagnose
from jupyter_mntrain.model.failure.judge import judge
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.job import Doing, PartStatus, RankStack, Stall
from tests.wording import says

Made = tuple[str, str, bool]
"""Name, tensors, whether it is over."""

SUM: Made = ("all_reduce", "1024 float32", True)
SUMS: Made = ("all_reduce", "1024 float32", False)
GATHERS: Made = ("all_gather", "1024 float32", False)
BARRIER: Made = ("barrier", "", False)


def calls(*made: Made, first: int = 1, group: str = "0", backend: str = "gloo") -> GroupCalls:
    return GroupCalls(
        group=group,
        backend=backend,
        calls=tuple(
            Call(seq=seq, name=name, tensors=tensors, is_over=is_over)
            for seq, (name, tensors, is_over) in enumerate(made, first)
        ),
    )


def rank(number: int, *groups: GroupCalls, doing: Doing = "waiting for others") -> Caller:
    stack = RankStack(
        rank=Rank(number), doing=doing, site="collective", where="step (train.py:9)", calls=groups
    )
    return Caller(f"n{number}", stack)


@pytest.mark.parametrize(
    ("ranks", "who", "words"),
    [
        (
            [rank(0, calls(SUM, SUMS)), rank(1, calls(SUM, GATHERS)), rank(2, calls(SUM, SUMS))],
            1,
            "step (train.py:9), the others all_reduce (seq 2, 1024 float32)",
        ),
        (
            [rank(0, calls(SUM, BARRIER)), rank(1, calls(SUM, SUMS))],
            None,
            "in step (train.py:9), but rank 0 on n0 barrier (seq 2)",
        ),
        (
            [rank(0, calls(SUM, ("all_reduce", "0 float32", True), BARRIER)),
             rank(1, calls(SUM, SUMS))],
            None,
            "but rank 0 on n0 all_reduce (seq 2, 0 float32)",
        ),
        (
            [rank(n, calls(SUM, ("all_reduce", f"1024 {dtype}", False)))
             for n, dtype in enumerate(("float32", "bfloat16", "float32", "float32"))],
            1,
            "1024 bfloat16",
        ),
        (  # Both went on: the first difference is still what was wrong.
            [rank(0, calls(SUM, ("barrier", "", True), SUMS)), rank(1, calls(SUM, SUM, SUMS))],
            None,
            "seq 2",
        ),
        (  # One holds older calls than the other.
            [rank(0, calls(SUM, SUM, SUM, SUMS)), rank(1, calls(SUM, GATHERS, first=3))],
            None,
            "all_gather (seq 4",
        ),
    ],
)  # fmt: skip
def test_the_first_call_that_differs_is_named(
    ranks: list[Caller], who: int | None, words: str
) -> None:
    found = mismatched_call(ranks)
    assert found is not None
    assert found.kind is Kind.COLLECTIVE_MISMATCH
    assert found.rank == who
    assert found.node == (None if who is None else f"n{who}")
    assert says(words, found.cause)
    assert found.fix


@pytest.mark.parametrize(
    "ranks",
    [
        [],
        [rank(0), rank(1, calls(SUMS))],
        [rank(0, calls(SUM, SUMS)), rank(1, calls(SUM, SUMS))],
        [rank(0, calls(SUMS)), rank(1, calls(GATHERS, group="1"))],
        [rank(0, calls(SUMS)), rank(1, calls(GATHERS, backend="nccl"))],
        [rank(0, calls()), rank(1, calls(SUMS))],
        [rank(0, calls(SUM)), rank(1, calls(GATHERS, first=7))],
        # NCCL gathers uneven shapes: where everybody went on, they did no harm.
        [rank(n, calls(("all_gather", f"{n} float32", True), SUMS)) for n in (3, 4)],
    ],
)
def test_ranks_that_agree_or_cannot_be_compared_are_not_blamed(ranks: list[Caller]) -> None:
    assert mismatched_call(ranks) is None


def test_a_rank_that_skips_a_call_is_named_but_not_one_that_is_still_in_the_call_before() -> None:
    waits = rank(0, calls(SUM, BARRIER, group="7"))
    found = missing_call([waits, rank(1, calls(SUM, group="7"))])
    assert found is not None
    assert (found.node, found.rank) == ("n1", 1)
    assert says("has not called barrier (seq 2), which rank 0 on n0 waits in", found.cause)
    # Its data may be lost on the way: the link is the cause.
    assert missing_call([waits, rank(1, calls(SUMS, group="7"))]) is None


def part(caller: Caller, **changes: object) -> PartStatus:
    stall = Stall(since_s=5.0, limit_s=10.0, step=3, stacks=(caller.stack,))
    made = PartStatus(
        node_id=NodeId(f"{caller.stack.rank:032x}"), node=caller.node, state="running", stall=stall
    )
    return msgspec.structs.replace(made, **changes)


def test_a_stall_is_explained_by_it_before_a_busy_rank_and_after_a_stopped_one() -> None:
    waits, gathers = rank(0, calls(SUM, SUMS)), rank(1, calls(SUM, GATHERS))
    found = diagnose([part(waits), part(gathers)])
    assert found is not None
    assert (found.kind, found.time_s) == (Kind.COLLECTIVE_MISMATCH, 5.0)
    went_on = rank(1, calls(SUM, ("all_reduce", "0 float32", True)), doing="busy")
    found = diagnose([part(waits), part(went_on)])
    assert found is not None
    assert found.kind is Kind.COLLECTIVE_MISMATCH
    found = diagnose([part(waits), part(rank(1, calls(SUM, GATHERS), doing="stopped"))])
    assert found is not None
    assert found.kind is Kind.STOPPED
    found = diagnose([part(rank(0, calls(SUM, BARRIER))), part(rank(1, calls(SUM)))])
    assert found is not None
    assert (found.kind, found.rank) == (Kind.COLLECTIVE_MISMATCH, 1)
    found = diagnose([part(waits), part(rank(1, calls(SUM), doing="busy"))])
    assert found is not None
    assert found.kind is Kind.BUSY, "it may come later"


def test_a_timeout_after_such_a_stall_is_its_consequence() -> None:
    timed_out = Problem(kind=Kind.TIMED_OUT, cause="timed out", time_s=1800.0)
    parts = [
        part(rank(0, calls(SUM, SUMS)), state="failed", problem=timed_out),
        part(rank(1, calls(SUM, GATHERS)), state="failed", problem=timed_out),
    ]
    verdict = judge(parts)
    assert verdict is not None
    assert verdict.problem.kind is Kind.COLLECTIVE_MISMATCH
    assert verdict.problem.time_s == 1800.0
