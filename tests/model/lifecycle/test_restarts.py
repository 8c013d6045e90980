"""Restarts: which attempt follows one that failed, and which node may start it."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.lifecycle.events import Warned
from jupyter_mntrain.model.lifecycle.restarts import (
    LAST_BACKOFF_S,
    earlier_attempts,
    follows,
    may_lead,
    may_succeed,
    next_restart,
    waited_too_long,
    waiting,
    without,
)
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.lifecycle.state import apply
from jupyter_mntrain.model.records.job import (
    Attempt,
    Earlier,
    JobRecord,
    JobSpec,
    JobView,
    Participant,
    PartStatus,
    Placement,
    RankStatus,
    Restart,
)

NOW_S = 1000.0


def place(number: int, **changes: object) -> Placement:
    one = Placement(
        node_id=NodeId(f"{number}" * 32),
        node=f"node{number}",
        node_rank=number,
        first_rank=Rank(number),
        nproc=1,
        gpus=(),
        interface="eth1",
        address=f"10.0.0.{number}",
        agent=(f"10.0.0.{number}:8765",),
    )
    return msgspec.structs.replace(one, **changes)


def part(number: int, state: str, exit_code: int | None = None) -> PartStatus:
    rank = RankStatus(rank=Rank(number), state=state, exit_code=exit_code)  # type: ignore[arg-type]
    node_id = NodeId(f"{number}" * 32)
    return PartStatus(node_id=node_id, node=f"node{number}", state=state, ranks=(rank,))  # type: ignore[arg-type]


def record(attempt: int = 1, number: int = 0, state: str = "failed", **spec: object) -> JobRecord:
    return JobRecord(
        job_id=JobId("j-00000001"),
        spec=JobSpec(
            entry=("a.py",),
            participants=(Participant("node0"), Participant("node1")),
            **({"max_restarts": 2} | spec),  # type: ignore[arg-type]
        ),
        attempt=Attempt(
            number=attempt,
            placements=(place(0), place(1), place(2)),
            master_address="10.0.0.0",
            master_port=1,
            submitted_s=1.0,
        ),
        part=part(number, state),
    )


FAILED = [part(0, "canceled"), part(1, "failed", -9)]


def test_what_failed_is_tried_again_so_many_times() -> None:
    waits = []
    for number in (1, 2):
        plan = next_restart(record(number), FAILED, NOW_S)
        assert plan is not None
        assert plan.number == number + 1
        waits.append(plan.at_s - NOW_S)
    assert waits == [1.0, 2.0]
    assert next_restart(record(3), FAILED, NOW_S) is None
    late = next_restart(record(50, max_restarts=99), FAILED, NOW_S)
    assert late is not None
    assert late.at_s == NOW_S + LAST_BACKOFF_S


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([part(0, "succeeded"), part(1, "succeeded")], "it is done"),
        ([part(0, "canceled"), part(1, "canceled")], "a person ended it"),
        ([part(0, "failed", 2), part(1, "canceled")], "its input is wrong"),
    ],
)
def test_what_would_not_be_better_is_not_tried_again(parts: list[PartStatus], why: str) -> None:
    assert next_restart(record(), parts, NOW_S) is None, why


def test_what_somebody_stopped_is_over() -> None:
    assert next_restart(msgspec.structs.replace(record(), is_over=True), FAILED, NOW_S) is None


def test_a_silent_node_does_not_hide_that_the_others_failed() -> None:
    silent = [part(0, "failed", -9), part(1, "unknown")]
    assert next_restart(record(), silent, NOW_S) is not None


def test_those_that_stay_are_numbered_anew() -> None:
    places = (place(0), place(1, nproc=2), place(2, first_rank=Rank(3)))
    kept = without(places, {NodeId("1" * 32)})
    assert [(p.node, p.node_rank, p.first_rank) for p in kept] == [("node0", 0, 0), ("node2", 1, 1)]
    assert without(places, set()) == places


def test_a_head_may_start_again_only_what_was_deposited() -> None:
    before = record()

    def later(*places: Placement, number: int = 2) -> Attempt:
        return msgspec.structs.replace(before.attempt, number=number, placements=places)

    assert follows(later(place(0), place(1), place(2)), before)
    assert follows(later(place(0), place(2, node_rank=1, first_rank=Rank(1))), before)
    assert follows(later(place(0, address="10.9.9.9", interface="eno1")), before)
    assert not follows(later(place(0), number=1), before)
    assert not follows(later(place(1), place(0)), before), "another head"
    assert not follows(later(place(0), place(3)), before), "a node that was not in it"
    assert not follows(later(place(0), place(1, nproc=8)), before)
    assert not follows(later(place(0), place(1, gpus=(1,))), before)
    assert not follows(later(), before)
    on_gpus = msgspec.structs.replace(before.attempt, placements=(place(0, gpus=(0, 1)),))
    before = msgspec.structs.replace(before, attempt=on_gpus)
    assert follows(later(place(0, gpus=(2, 5))), before), "an allocation's cards may be others"
    assert not follows(later(place(0, gpus=(0, 1, 2))), before)


def view(*records: JobRecord) -> JobView:
    return roll_up(records)


def test_a_job_that_will_be_tried_again_has_not_failed_until_its_head_says_so() -> None:
    parts = [record(number=n, state="failed") for n in range(3)]
    assert view(*parts).state == "pending"
    over = msgspec.structs.replace(parts[0], is_over=True)
    assert view(over, *parts[1:]).state == "failed"
    assert view(*(record(number=n, max_restarts=0) for n in range(3))).state == "failed"
    assert view(*parts[1:]).state == "stopping", "the head does not answer"


@pytest.mark.parametrize(
    ("least", "may"), [(None, False), (1, False), (2, True), (3, True)], ids=str
)
def test_a_head_is_replaced_only_where_two_halves_cannot_both_go_on(
    least: int | None, may: bool
) -> None:
    known = record(min_nodes=least)
    known = msgspec.structs.replace(known, members=tuple(place(n).node_id for n in range(3)))
    assert may_succeed(known) == may
    second, stranger = NodeId("1" * 32), NodeId("9" * 32)
    assert may_lead(second, known) == may
    assert may_lead(known.attempt.head.node_id, known)
    assert not may_lead(stranger, known)
    rest = without(known.attempt.placements, {known.attempt.head.node_id})
    after = msgspec.structs.replace(known.attempt, number=2, placements=rest)
    assert follows(after, known) == may
    # With the head among them another one may not lead them.
    turned = msgspec.structs.replace(after, placements=(*rest, known.attempt.head))
    assert not follows(turned, known)


def test_a_job_that_failed_of_nan_is_not_tried_again() -> None:
    nan = Problem(kind=Kind.LOSS_NAN, cause="the loss became NaN")
    failed = msgspec.structs.replace(part(1, "failed"), problem=nan)
    assert next_restart(record(max_restarts=3), [part(0, "canceled"), failed], NOW_S) is None


def reached(one: JobRecord, step: int | None, saved_step: int | None) -> JobRecord:
    ranks = tuple(msgspec.structs.replace(rank, step=step) for rank in one.part.ranks)
    ended = msgspec.structs.replace(one.part, ranks=ranks, saved_step=saved_step)
    return msgspec.structs.replace(one, part=ended)


def test_a_restarted_attempt_is_told_how_far_those_before_it_came() -> None:
    first = reached(record(1), 400, 300)
    size = first.attempt.world_size
    told = earlier_attempts(first)
    assert told == Earlier(world_size=size, step=400, attempt=1, saved_step=300)
    # The second has fewer ranks, and does not come that far.
    smaller = msgspec.structs.replace(
        first.attempt, number=2, placements=first.attempt.placements[:1], earlier=told
    )
    second = reached(msgspec.structs.replace(first, attempt=smaller), 310, None)
    assert earlier_attempts(second) == told


def test_the_first_attempt_of_a_queued_job_has_none_before_it() -> None:
    assert earlier_attempts(record(0)) is None


SILENCE = Problem(kind=Kind.SILENT, cause="does not answer", node="node2")
BUSY = Problem(kind=Kind.GPU_TAKEN, cause="GPU 0 is taken", node="node1")


@pytest.mark.parametrize(
    ("limit_s", "now_s", "is_over"), [(None, 1e9, False), (60.0, 60.0, False), (60.0, 61.0, True)]
)
def test_a_queued_job_waits_no_longer_than_its_limit(
    limit_s: float | None, now_s: float, is_over: bool
) -> None:
    queued = record(attempt=0, state="pending", queue_limit_s=limit_s, lost_limit_s=1.0)
    plan = waiting(Restart(number=1, at_s=1.0), BUSY, now_s)
    found = waited_too_long(msgspec.structs.replace(queued, restart=plan), now_s)
    assert (found is not None) == is_over
    if found is not None:
        assert found.kind is Kind.WAITED_TOO_LONG
        assert BUSY.cause in found.cause
        assert found.fix


def test_a_job_waits_no_longer_than_its_limit_for_a_node_without_a_break() -> None:
    job = record(lost_limit_s=600.0, queue_limit_s=1.0)
    plan = Restart(number=2, at_s=0.0)
    for now_s, reason in ((100.0, SILENCE), (690.0, SILENCE), (695.0, BUSY), (700.0, SILENCE)):
        plan = waiting(plan, reason, now_s)
        assert waited_too_long(msgspec.structs.replace(job, restart=plan), now_s) is None
    plan = waiting(plan, SILENCE, 1300.0)
    waits = msgspec.structs.replace(job, restart=plan)
    assert waited_too_long(waits, 1299.0) is None
    found = waited_too_long(waits, 1300.0)
    assert found is not None
    assert found.kind is Kind.WAITED_TOO_LONG
    assert "node2" in found.cause
    unlimited = msgspec.structs.replace(waits, spec=record().spec)
    assert waited_too_long(unlimited, 1e9) is None
    # The attempt has ended before: the job stays failed, and says why nothing follows.
    ended = apply(job.part, Warned(problem=found))
    assert ended.warnings == (found,)
    over = msgspec.structs.replace(job, part=ended, is_over=True)
    assert [one.kind for one in roll_up([over]).warnings] == [Kind.WAITED_TOO_LONG]


def attempts(
    problem: Problem, *later: Problem, took_s: float = 30.0, step: int | None = None
) -> Restart | None:
    """What is planned after attempts that failed like that, one after the other."""
    spec = JobSpec(entry=("a.py",), participants=(Participant(node="node1"),), max_restarts=5)
    plan, attempt = None, Attempt(1, (place(1),), "10.0.0.1", 1, NOW_S)
    for one in (problem, *later):
        own = msgspec.structs.replace(
            part(1, "failed", 1), problem=one, started_s=NOW_S, ended_s=NOW_S + took_s
        )
        ranks = (msgspec.structs.replace(own.ranks[0], step=step),)
        own = msgspec.structs.replace(own, ranks=ranks)
        record = JobRecord(job_id=JobId("j-00000001"), spec=spec, attempt=attempt, part=own)
        plan = next_restart(record, [own], NOW_S)
        if plan is None:
            return None
        earlier = earlier_attempts(msgspec.structs.replace(record, restart=plan))
        attempt = msgspec.structs.replace(attempt, number=plan.number, earlier=earlier)
    return plan


def raised(cause: str, kind: Kind = Kind.EXCEPTION) -> Problem:
    return Problem(kind=kind, cause=cause, detail="Traceback …")


KEY = raised("KeyError: 'lr' (train.py, line 9)")
LOST = raised("connection reset", Kind.CONNECTION_LOST)


@pytest.mark.parametrize(
    ("failures", "how", "goes_on"),
    [
        ((KEY,), {}, True),
        ((KEY, KEY), {}, False),
        ((LOST, KEY, KEY), {}, False),
        ((KEY, raised("KeyError: 'lr' (train.py, line 10)")), {}, True),
        ((KEY, raised("KeyError: 'lr' (train.py, line 9)", Kind.NO_FILE)), {}, True),
        ((KEY, LOST, KEY), {}, True),
        ((LOST, LOST), {}, True),
        ((KEY, KEY), {"step": 3}, True),
        ((KEY, KEY), {"took_s": 3600.0}, True),
    ],
)
def test_what_fails_the_same_way_before_any_progress_is_not_tried_a_third_time(
    failures: tuple[Problem, ...], how: dict[str, float], goes_on: bool
):
    plan = attempts(*failures, **how)  # type: ignore[arg-type]
    assert (plan is not None) is goes_on
    if plan is not None:
        assert plan.failure == msgspec.structs.replace(failures[-1], detail="")
