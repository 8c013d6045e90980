"""When the parts of a job end the others, by what they say. Live gangs are in test_attempts."""

from __future__ import annotations

from jupyter_mntrain.agent.gang import reason_to_end
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.job import Cause, PartStatus


def part(node: str, state, *, cause: str | None = None, is_symptom=False, reason=None):
    blame = None if cause is None else Cause(summary=cause, time_s=1.0, is_symptom=is_symptom)
    return PartStatus(node_id=NodeId(node), node=node, state=state, cause=blame, stop_reason=reason)


def test_nothing_ends_what_goes_on_or_ended_well():
    states = ("pending", "starting", "running", "stopping", "succeeded", "unknown")
    assert reason_to_end([part("node1", state) for state in states]) is None


def test_a_failure_is_told_with_its_node_and_cause():
    parts = [part("node1", "running"), part("node2", "failed", cause="rank 1: killed by SIGKILL")]
    assert reason_to_end(parts) == "node2 failed: rank 1: killed by SIGKILL"
    assert reason_to_end([part("node3", "failed")]) == "node3 failed"


def test_a_cause_is_told_before_its_symptoms():
    parts = [
        part("node1", "failed", cause="rank 0: Connection closed by peer", is_symptom=True),
        part("node2", "failed", cause="rank 1: ValueError: no"),
    ]
    assert reason_to_end(parts) == "node2 failed: rank 1: ValueError: no"


def test_a_reason_is_handed_on_as_it_was_given():
    told = part("node1", "cancelled", reason="node3 failed: rank 4: out of memory")
    assert reason_to_end([part("node2", "running"), told]) == "node3 failed: rank 4: out of memory"
    assert reason_to_end([part("node1", "cancelled")]) == "node1 was stopped"
