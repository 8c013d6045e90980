"""Job ledger: jobs from the reports of nodes, some unreachable, with late replies."""

from __future__ import annotations

import pytest

from jupyter_mntrain.cluster.view.job_ledger import JobLedger
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.records.job import JobState
from tests.standin.jobs import record

ONE, TWO = NodeId("id-of-node1"), NodeId("id-of-node2")
BOTH = {ONE, TWO}


@pytest.fixture
def ledger() -> JobLedger:
    made = JobLedger()
    made.set_reachable(BOTH)
    made.replace(ONE, [record(0)])
    made.replace(TWO, [record(1)])
    return made


def states(ledger: JobLedger) -> list[JobState]:
    (view,) = ledger.views()
    return [view.state, *(part.state for part in view.parts)]


def test_a_job_of_two_nodes_that_answer(ledger: JobLedger) -> None:
    assert states(ledger) == ["running", "running", "running"]


def test_the_part_of_a_silent_node_is_unknown_and_known_again_when_it_speaks(
    ledger: JobLedger,
) -> None:
    assert ledger.set_reachable({ONE})
    assert states(ledger) == ["running", "running", "unknown"]
    assert not ledger.set_reachable({ONE})
    ledger.set_reachable(BOTH)
    assert states(ledger) == ["running", "running", "running"]


def test_a_finished_part_stays_finished_when_its_node_is_switched_off(ledger: JobLedger) -> None:
    ledger.update(record(1, "succeeded"))
    ledger.set_reachable({ONE})
    assert states(ledger) == ["running", "running", "succeeded"]
    ledger.set_reachable(set())
    assert states(ledger) == ["unknown", "unknown", "succeeded"]


def test_a_job_whose_every_node_is_silent_is_still_listed(ledger: JobLedger) -> None:
    ledger.set_reachable(set())
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


def test_hello_is_the_whole_truth_about_a_node(ledger: JobLedger) -> None:
    ledger.replace(ONE, [])
    assert states(ledger) == ["running", "unknown", "running"]
    ledger.replace(TWO, [])
    assert ledger.views() == ()


def test_newest_job_first(ledger: JobLedger) -> None:
    newer = record(0, job_id=JobId("j-00000002"), submitted_s=200.0)
    ledger.update(newer)
    assert [view.job_id for view in ledger.views()] == ["j-00000002", "j-00000001"]
