"""Roll-up: a job is done only when every part is, and shows the first cause."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.model.failure.judge import judge, part_to_blame
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.lifecycle.restarts import next_restart
from jupyter_mntrain.model.lifecycle.rollup import (
    is_out,
    job_state,
    roll_up,
    taken_part,
    unknown_part,
)
from jupyter_mntrain.model.lifecycle.state import new_part
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    Attempt,
    JobRecord,
    JobSpec,
    JobState,
    Participant,
    PartStatus,
    Placement,
)
from tests.model.lifecycle.test_state import STATES
from tests.standin import jobs

TRUTH: dict[tuple[JobState, ...], JobState] = {
    ("succeeded", "succeeded"): "succeeded",
    ("succeeded", "running"): "running",
    ("succeeded", "unknown"): "unknown",
    ("succeeded", "canceled"): "canceled",
    ("succeeded", "failed"): "failed",
    ("canceled", "canceled"): "canceled",
    ("canceled", "failed"): "failed",
    ("failed", "running"): "stopping",
    ("failed", "unknown"): "stopping",
    ("canceled", "running"): "stopping",
    ("canceled", "unknown"): "stopping",
    ("stopping", "running"): "stopping",
    ("stopping", "succeeded"): "stopping",
    ("running", "running"): "running",
    ("running", "unknown"): "running",
    ("running", "starting"): "starting",
    ("starting", "unknown"): "starting",
    ("pending", "running"): "pending",
    ("pending", "unknown"): "pending",
    ("unknown", "unknown"): "unknown",
    ("pending",): "pending",
    (): "unknown",
}


@pytest.mark.parametrize("parts", [*TRUTH], ids="+".join)
def test_the_truth_table(parts: tuple[JobState, ...]) -> None:
    assert job_state(parts) == TRUTH[parts]
    assert job_state(reversed(parts)) == TRUTH[parts]


# What another tool's multi-node mode gets wrong, each by its words there.
PEERS_ERRORS: dict[str, tuple[tuple[JobState, ...], JobState]] = {
    "one rank is done, so the job is": (("succeeded", "running"), "running"),
    "a rank that nobody can ask is as good as done": (("succeeded", "unknown"), "unknown"),
    "done wins over aborted": (("succeeded", "canceled"), "canceled"),
    "aborted is no end, so waiting for it never ends": (("canceled", "canceled"), "canceled"),
    "a rank that waits its turn is unknown": (("pending", "pending"), "pending"),
    "a crash is done": (("succeeded", "failed"), "failed"),
}


@pytest.mark.parametrize("error", PEERS_ERRORS)
def test_an_error_of_others_that_is_not_ours(error: str) -> None:
    parts, state = PEERS_ERRORS[error]
    assert job_state(parts) == state


def test_what_was_said_of_a_job_once_does_not_stick() -> None:
    """A roll-up knows only what its parts say now: what was an end is none any more."""
    done = [record(0, "succeeded"), record(2, "succeeded")]
    assert roll_up(done).state == "unknown"
    assert roll_up([*done, record(1, "running")]).state == "running"
    assert roll_up([*done, record(1, "failed")]).state == "failed"


@pytest.mark.parametrize("parts", [*product(STATES, repeat=3)], ids="+".join)
def test_a_job_is_over_exactly_when_every_part_is(parts: tuple[JobState, ...]) -> None:
    state = job_state(parts)
    assert (state in TERMINAL) == all(part in TERMINAL for part in parts)
    assert (state == "succeeded") == all(part == "succeeded" for part in parts)


@given(st.lists(st.sampled_from(STATES), max_size=8))
def test_the_order_of_parts_does_not_matter(parts: list[JobState]) -> None:
    assert job_state(parts) == job_state(sorted(parts)) == job_state(set(parts))


def placement(node_rank: int) -> Placement:
    return Placement(
        node_id=NodeId(f"{node_rank:032x}"),
        node=f"node{node_rank}",
        node_rank=node_rank,
        first_rank=Rank(node_rank),
        nproc=1,
        gpus=(),
        interface="eth0",
        address=f"10.0.0.{node_rank + 1}",
        agent=(f"10.0.0.{node_rank + 1}:8765",),
    )


def record(
    node_rank: int, state: JobState, *, number: int = 1, problem: Problem | None = None
) -> JobRecord:
    places = tuple(placement(n) for n in range(3))
    own = places[node_rank]
    part = new_part(own.node_id, own.node, own.ranks)
    return JobRecord(
        job_id=JobId("j-00000001"),
        spec=JobSpec(entry=("t.py",), participants=tuple(Participant(node=p.node) for p in places)),
        attempt=Attempt(
            number=number,
            placements=places,
            master_address="10.0.0.1",
            master_port=29400,
            submitted_s=100.0 + number,
        ),
        part=msgspec.structs.replace(part, state=state, problem=problem),
    )


def test_a_participant_that_did_not_answer_is_an_unknown_part_in_its_place() -> None:
    view = roll_up([record(2, "succeeded"), record(0, "succeeded")])
    assert [part.state for part in view.parts] == ["succeeded", "unknown", "succeeded"]
    assert [part.node for part in view.parts] == ["node0", "node1", "node2"]
    assert view.parts[1] == unknown_part(placement(1))
    assert [status.state for status in view.parts[1].ranks] == ["unknown"]
    assert view.state == "unknown"


def test_parts_of_an_older_attempt_do_not_count() -> None:
    view = roll_up([record(0, "running", number=2), record(1, "failed", number=1)])
    assert view.attempt.number == 2
    assert [part.state for part in view.parts] == ["running", "unknown", "unknown"]
    assert view.state == "running"


def problem(time_s: float, *, is_symptom: bool = False) -> Problem:
    kind = Kind.CONNECTION_LOST if is_symptom else Kind.EXCEPTION
    return Problem(kind=kind, cause=f"at {time_s}", time_s=time_s)


def test_the_blame_goes_to_the_earliest_cause_and_never_to_a_symptom_before_it() -> None:
    view = roll_up(
        [
            record(0, "failed", problem=problem(1.0, is_symptom=True)),
            record(1, "failed", problem=problem(3.0)),
            record(2, "failed", problem=problem(2.0)),
        ]
    )
    assert view.problem == msgspec.structs.replace(problem(2.0), node="node2")


def test_a_symptom_alone_is_no_cause() -> None:
    symptom = record(0, "failed", problem=problem(1.0, is_symptom=True))
    view = roll_up([symptom, record(1, "canceled"), record(2, "canceled")])
    assert view.problem is not None
    assert (view.problem.node, view.problem.kind) == (None, Kind.UNKNOWN_CAUSE)
    assert view.verdict is not None
    assert view.verdict.sureness == "unknown"


def test_without_a_cause_nobody_is_blamed() -> None:
    parts: list[PartStatus] = [record(0, "succeeded").part]
    assert part_to_blame(parts) is None
    assert roll_up([record(0, "running")]).problem is None


def lost(number: int, **changes: object) -> PartStatus:
    """A part that failed only because somebody hung up."""
    cause = problem(10.0, is_symptom=True)
    made = new_part(NodeId(f"{number:032x}"), f"node{number}", range(number, number + 1))
    return msgspec.structs.replace(made, **({"state": "failed", "problem": cause} | changes))


def blamed(parts: list[PartStatus]) -> Problem | None:
    verdict = judge(parts)
    return verdict and verdict.problem


def test_whom_the_others_lost_is_the_cause_and_not_that_they_lost_it() -> None:
    early = lost(1, state="stopping", problem=None)
    done = msgspec.structs.replace(early.ranks[0], done_s=9.0)
    found = blamed([lost(0), msgspec.structs.replace(early, ranks=(done,))])
    assert found is not None
    assert (found.kind, found.node, found.rank) == (Kind.ENDED_EARLY, "node1", 1)
    late = msgspec.structs.replace(early, ranks=(msgspec.structs.replace(done, done_s=11.0),))
    found = blamed([lost(0), late])
    assert found is not None
    assert (found.kind, found.node, found.time_s) == (Kind.UNKNOWN_CAUSE, None, 10.0)
    found = blamed([lost(0), lost(1, state="unknown", problem=None)])
    assert found is not None
    assert (found.kind, found.node, found.rank) == (Kind.NODE_LOST, "node1", None)
    assert found.fix


def test_a_part_that_names_another_node_is_believed() -> None:
    told = msgspec.structs.replace(problem(1.0), node="node7")
    view = roll_up([record(0, "failed", problem=told)])
    assert view.problem is not None
    assert view.problem.node == "node7"


def test_a_part_whose_record_is_lost_ended_as_the_others_did_or_has_failed() -> None:
    three = (jobs.place("node1", 0, 0), jobs.place("node2", 1, 1), jobs.place("node3", 2, 2))
    absent = {three[1].node_id}

    def states(*known: JobRecord) -> list[JobState]:
        found = roll_up(known, absent)
        return [found.state, *(part.state for part in found.parts)]

    done, going = (jobs.record(0, state, places=three) for state in ("succeeded", "running"))
    assert states(done, jobs.record(2, "succeeded", places=three)) == ["succeeded"] * 4
    assert states(done) == ["unknown", "succeeded", "succeeded", "unknown"], "one is silent"
    assert states(going) == ["stopping", "running", "failed", "unknown"]
    problem = roll_up([going], absent).problem
    assert problem is not None
    assert (problem.kind, problem.node) == (Kind.NO_RECORD, "node2")


def test_a_job_whose_head_lost_its_record_waits_for_no_restart() -> None:
    failed = jobs.record(1, "failed", spec={"max_restarts": 3})
    assert roll_up([failed]).state == "stopping"
    assert roll_up([failed], {failed.attempt.head.node_id}).state == "failed"


def test_a_part_whose_node_was_taken_has_failed_for_that_reason_unless_it_had_ended() -> None:
    two = (jobs.place("node1", 0, 0), jobs.place("node2", 1, 1))
    down = Problem(kind=Kind.NODE, cause="its machine is down", node="cn7")
    ours = jobs.record(0, "failed", places=two)
    taken = roll_up([ours], taken={two[1].node_id: down})
    assert taken.state == "failed"
    assert taken.parts[1].problem is not None
    assert (taken.parts[1].problem.kind, taken.parts[1].problem.node) == (Kind.NODES_TAKEN, None)
    theirs = jobs.record(1, "succeeded", places=two)
    assert roll_up([ours, theirs], taken={two[1].node_id: down}).parts[1].state == "succeeded"


def test_a_node_that_was_taken_takes_part_in_no_further_attempt() -> None:
    two = (jobs.place("node1", 0, 0), jobs.place("node2", 1, 1))
    gone = taken_part(two[1], Problem(kind=Kind.PREEMPTED, cause="others need it"))
    ours = jobs.record(0, "failed", places=two, spec={"max_restarts": 2})
    assert is_out(gone)
    assert next_restart(ours, [ours.part, gone], 0.0) is None
    fewer = jobs.record(0, "failed", places=two, spec={"max_restarts": 2, "min_nodes": 1})
    assert next_restart(fewer, [fewer.part, gone], 0.0) is not None
    told = msgspec.structs.replace(gone, ended_s=5.0)
    assert not is_out(told), "it wrote its end itself, and its slot may be filled again"
