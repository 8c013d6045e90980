"""Job ledger: jobs from the reports of nodes, some unreachable, with late replies."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.cluster.view.job_ledger import JobLedger
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.lifecycle.rollup import START_PATIENCE_S
from jupyter_mntrain.model.records.job import JobState
from jupyter_mntrain.model.records.node import NodeInfo
from tests.cluster.conftest import FakeClock
from tests.standin.jobs import JOB, record
from tests.standin.nodes import node

ONE, TWO = NodeId("id-of-node1"), NodeId("id-of-node2")


def info(number: int, node_id: NodeId) -> NodeInfo:
    found = node(f"node{number}")
    addresses = (f"10.0.0.{number}:8765",)
    return msgspec.structs.replace(found, node_id=node_id, addresses=addresses)


NODE1, NODE2 = info(1, ONE), info(2, TWO)
BOTH = (NODE1, NODE2)


@pytest.fixture
def ledger(clock: FakeClock) -> JobLedger:
    clock.now += record(0).attempt.submitted_s - clock.time()
    made = JobLedger(clock)
    made.set_reachable(BOTH)
    made.begin(ONE, [record(0)])
    made.begin(TWO, [record(1)])
    return made


def states(ledger: JobLedger) -> list[JobState]:
    (view,) = ledger.views()
    return [view.state, *(part.state for part in view.parts)]


def test_a_job_of_two_nodes_that_answer(ledger: JobLedger) -> None:
    assert states(ledger) == ["running", "running", "running"]


def test_the_part_of_a_silent_node_is_unknown_and_known_again_when_it_speaks(
    ledger: JobLedger,
) -> None:
    assert ledger.set_reachable([NODE1])
    assert states(ledger) == ["running", "running", "unknown"]
    assert not ledger.set_reachable([NODE1])
    ledger.set_reachable(BOTH)
    assert states(ledger) == ["running", "running", "running"]


def test_a_finished_part_stays_finished_when_its_node_is_switched_off(ledger: JobLedger) -> None:
    ledger.update(record(1, "succeeded"))
    ledger.set_reachable([NODE1])
    assert states(ledger) == ["running", "running", "succeeded"]
    ledger.set_reachable([])
    assert states(ledger) == ["unknown", "unknown", "succeeded"]


def test_a_job_whose_every_node_is_silent_is_still_listed(ledger: JobLedger) -> None:
    ledger.set_reachable([])
    assert states(ledger) == ["unknown", "unknown", "unknown"]


def test_a_late_reply_does_not_turn_time_back(ledger: JobLedger) -> None:
    assert ledger.update(record(0, "succeeded"))
    assert not ledger.update(record(0, "running"))
    assert not ledger.update(record(0, "stopping"))
    assert states(ledger) == ["running", "succeeded", "running"]


def test_a_new_attempt_is_newer_than_any_end(ledger: JobLedger) -> None:
    ledger.update(record(0, "failed"))
    assert ledger.update(record(0, "starting", number=2))
    assert not ledger.update(record(0, "failed", number=1))
    assert states(ledger) == ["starting", "starting", "unknown"]


def test_progress_within_a_state_is_taken(ledger: JobLedger) -> None:
    assert ledger.update(record(0, "running", started_s=5.0))
    (view,) = ledger.views()
    assert view.parts[0].started_s == 5.0


def test_what_a_hello_no_longer_has_is_unknown_until_its_node_was_asked(ledger: JobLedger) -> None:
    ledger.begin(ONE, [])
    assert states(ledger) == ["running", "unknown", "running"]
    assert ledger.missing == [(JOB, ONE)]
    ledger.update(record(0, "succeeded"))
    assert states(ledger) == ["running", "succeeded", "running"]
    ledger.begin(TWO, [])
    assert ledger.missing == [(JOB, TWO)]
    ledger.update(record(1, "succeeded"))
    assert ledger.missing == []
    assert states(ledger) == ["succeeded", "succeeded", "succeeded"]


def test_an_ended_job_needs_no_hello_and_is_gone_once_no_node_has_it(
    ledger: JobLedger, clock: FakeClock
) -> None:
    clock.now += START_PATIENCE_S + 1
    for one in (record(0, "failed"), record(1, "failed")):
        ledger.update(one)
    ledger.begin(ONE, [])
    ledger.begin(TWO, [])
    assert ledger.missing == []
    assert states(ledger) == ["failed", "failed", "failed"]
    ledger.lacks(JOB, ONE)
    assert states(ledger) == ["failed", "failed", "failed"]
    ledger.lacks(JOB, TWO)
    assert ledger.views() == ()
    assert ledger.missing == []


def test_a_job_that_may_have_been_restarted_meanwhile_is_asked_for(ledger: JobLedger) -> None:
    again = {"spec": {"max_restarts": 1}}
    for one in (record(0, "failed", **again), record(1, "failed", **again)):
        ledger.update(one)
    ledger.begin(ONE, [])
    assert ledger.missing == [(JOB, ONE)]
    assert not ledger.update(record(0, "running", **again)), "older than what is known"
    assert ledger.missing == [], "its node was asked"


def test_what_a_node_has_deleted_meanwhile_is_noticed(ledger: JobLedger) -> None:
    for one in (record(0, "succeeded"), record(1, "succeeded")):
        ledger.update(one)
    older = record(0, "succeeded", job_id=JobId("j-00000002"), submitted_s=90.0)
    ledger.confirm(ONE, [older], is_all=False)
    assert ledger.missing == [(JOB, ONE)]
    ledger.lacks(JOB, ONE)
    ledger.confirm(TWO, [], is_all=True)
    assert ledger.missing == [(JOB, TWO)]


def test_a_page_that_was_read_before_a_deletion_does_not_bring_the_job_back(
    ledger: JobLedger,
) -> None:
    for node_id in (ONE, TWO):
        ledger.delete(JOB, node_id)
    ledger.confirm(ONE, [record(0, "failed")], is_all=False)
    assert not ledger.update(record(1, "failed"))
    assert (ledger.views(), ledger.missing) == ((), [])


def test_a_part_that_no_page_had_is_asked_for(ledger: JobLedger, clock: FakeClock) -> None:
    clock.now += START_PATIENCE_S + 1
    job = JobId("j-00000002")
    ledger.take([record(0, "succeeded", job_id=job)])
    assert ledger.missing == [(job, TWO)]
    ledger.set_reachable([NODE1])
    assert ledger.missing == []


def test_newest_job_first(ledger: JobLedger) -> None:
    newer = record(0, job_id=JobId("j-00000002"), submitted_s=200.0)
    ledger.update(newer)
    assert [view.job_id for view in ledger.views()] == ["j-00000002", "j-00000001"]


def test_a_node_that_lost_its_record_has_failed_once_no_start_can_be_on_its_way(
    ledger: JobLedger, clock: FakeClock
) -> None:
    ledger.lacks(JOB, TWO)
    assert states(ledger) == ["running", "running", "unknown"]
    clock.now += START_PATIENCE_S + 1
    assert ledger.set_reachable(BOTH), "the same nodes, but later"
    assert states(ledger) == ["stopping", "running", "failed"]
    (view,) = ledger.views()
    assert view.problem is not None
    assert (view.problem.kind, view.problem.node) == (Kind.NO_RECORD, "node2")
    assert not ledger.set_reachable(BOTH)
    ledger.update(record(1))
    assert states(ledger) == ["running", "running", "running"], "a late start"


def test_a_driver_whose_clock_is_behind_waits_by_its_own_time(
    ledger: JobLedger, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "time", lambda: 0.0)
    ledger.lacks(JOB, TWO)
    clock.now += START_PATIENCE_S + 1
    ledger.set_reachable(BOTH)
    assert states(ledger) == ["stopping", "running", "failed"]


@pytest.mark.parametrize("ended", ["succeeded", "canceled", "failed"])
def test_a_job_that_had_ended_keeps_its_state_when_a_node_joins_anew(
    ledger: JobLedger, clock: FakeClock, ended: JobState
) -> None:
    clock.now += START_PATIENCE_S + 1
    ledger.update(record(0, ended))
    # With its state directory it lost its id; it has its name and address.
    ledger.lacks(JOB, TWO)
    ledger.set_reachable([NODE1, info(2, NodeId("another-id"))])
    assert states(ledger) == [ended, ended, ended]
    ledger.set_reachable([NODE1, info(3, NodeId("another-id"))])
    assert states(ledger)[-1] == "unknown", "another machine proves nothing"


def test_a_node_that_joined_anew_while_its_job_ran_has_lost_its_part(
    ledger: JobLedger, clock: FakeClock
) -> None:
    clock.now += START_PATIENCE_S + 1
    ledger.set_reachable([NODE1, info(2, NodeId("another-id"))])
    assert states(ledger) == ["stopping", "running", "failed"]
