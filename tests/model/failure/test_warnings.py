"""Warnings of a job: merged from its parts, and what only all parts together show."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.warnings import job_episodes, job_warnings, never_met
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.job import Episode, JobState, PartStatus, RankStatus
from tests.wording import says


def part(number: int, *warnings: Problem, sizes: tuple[int | None, ...] = (None,)) -> PartStatus:
    return PartStatus(
        node_id=NodeId(f"{number}" * 32),
        node=f"node{number}",
        state="succeeded",
        ranks=tuple(
            RankStatus(rank=Rank(10 * number + n), state="succeeded", group_size=size)
            for n, size in enumerate(sizes)
        ),
        warnings=warnings,
    )


def warning(kind: Kind, time_s: float, rank: int = 0) -> Problem:
    return Problem(kind=kind, cause="odd", rank=Rank(rank), time_s=time_s)


def test_the_earliest_of_each_kind_is_told_with_its_node() -> None:
    parts = [
        part(1, warning(Kind.LOSS_NAN, 3.0), warning(Kind.TRACEBACK, 9.0)),
        part(2, warning(Kind.LOSS_NAN, 2.0)),
    ]
    told = job_warnings(parts, 2)
    assert [(one.kind, one.node) for one in told] == [
        (Kind.LOSS_NAN, "node2"),
        (Kind.TRACEBACK, "node1"),
    ]


def test_a_slow_down_is_a_warning_until_it_is_over() -> None:
    slow = Problem(kind=Kind.SLOW_JOB, cause="steps take longer", time_s=4.0)
    over = Episode(problem=slow, label="slower", end_s=9.0)
    now = Episode(problem=msgspec.structs.replace(slow, time_s=12.0), label="slower")
    leads = msgspec.structs.replace(part(2), episodes=(over, now))
    led_before = msgspec.structs.replace(part(1), episodes=(over,))
    assert job_warnings([led_before, leads], 2) == (now.problem,)
    assert job_episodes([leads, led_before]) == (over, over, now)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Kind.LOSS_CONSTANT, Kind.ZERO_GRADIENTS),
        (Kind.LOSS_DIVERGED, Kind.LOSS_NAN),
        (Kind.ZERO_GRADIENTS, Kind.LOSS_NAN),
    ],
)
def test_what_another_warning_explains_is_not_told(kind: Kind, why: Kind) -> None:
    told = job_warnings([part(1, warning(kind, 1.0), warning(why, 2.0))], 1)
    assert [one.kind for one in told] == [why]


def test_what_the_job_failed_of_is_not_told_again() -> None:
    failed = warning(Kind.LOSS_NAN, 1.0)
    doubtful = part(1, failed, warning(Kind.LOSS_DIVERGED, 0.5), warning(Kind.BEGAN_AGAIN, 0.0))
    assert [one.kind for one in job_warnings([doubtful], 1, failed)] == [Kind.BEGAN_AGAIN]


@pytest.mark.parametrize(
    ("state", "is_told"), [("running", True), ("succeeded", True), ("failed", False)]
)
def test_a_traceback_of_a_rank_that_has_failed_since_is_its_failure(
    state: JobState, is_told: bool
) -> None:
    one = part(1, warning(Kind.TRACEBACK, 1.0, rank=10))
    ranks = (msgspec.structs.replace(one.ranks[0], state=state),)
    told = job_warnings([msgspec.structs.replace(one, ranks=ranks)], 1)
    assert bool(told) is is_told


@pytest.mark.parametrize(
    ("sizes", "size", "cause"),
    [
        (((1,), (1,)), 2, "the ranks never met: 2 separate trainings"),
        (((2, 2), (2, 2)), 4, "the ranks never met: 2 separate trainings"),
        (((0,), (0,)), 2, "the ranks never met: none has connected to another"),
        (((1,), (0,)), 2, "the ranks never met: none has connected to another"),
    ],
    ids=["two worlds", "a world per node", "by their connections", "by both"],
)
def test_ranks_that_train_apart(
    sizes: tuple[tuple[int | None, ...], ...], size: int, cause: str
) -> None:
    parts = [part(number, sizes=one) for number, one in enumerate(sizes, 1)]
    found = never_met(parts, size)
    assert found is not None
    assert found.kind is Kind.RANKS_NEVER_MET
    assert says(cause, found.cause)
    assert job_warnings(parts, size) == (found,)


def test_ranks_that_start_another_torchrun_are_told_to_launch_what_it_starts() -> None:
    one, other = part(1, sizes=(0,)), part(2, sizes=(0,))
    ranks = (msgspec.structs.replace(one.ranks[0], own_torchrun="child.py"),)
    found = never_met([msgspec.structs.replace(one, ranks=ranks), other], 2)
    assert found is not None
    assert "child.py" in found.fix


@pytest.mark.parametrize(
    ("sizes", "size"),
    [
        (((2,), (2,)), 2),
        (((1,), (None,)), 2),
        (((1,), (2,)), 2),
        (((1,),), 1),
        ((), 2),
    ],
    ids=["met", "one is not known", "one has met", "one rank", "no parts"],
)
def test_ranks_that_met_or_may_have(sizes: tuple[tuple[int | None, ...], ...], size: int) -> None:
    assert never_met([part(n, sizes=one) for n, one in enumerate(sizes, 1)], size) is None
