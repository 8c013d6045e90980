"""Queue lines: recorded ones, and the allocation that each describes."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.sources.source import NodesRequest
from jupyter_mntrain.sources.slurm.queue_line import (
    HeldNodes,
    QueueLine,
    allocation_of,
    history_of,
    node_states,
    queue_line,
    unix_s,
)

REQUEST = NodesRequest("slurm", 3)
RUNNING = "1|RUNNING|1795780181|1795780182|1827316182|node[2-4]|None|/home/me/a|b"
PENDING = "2|PENDING|1795780181|N/A|N/A||Resources|/home/me"
NODES = ("node2", "node3", "node4")


def line(text: str) -> QueueLine:
    read = queue_line(text)
    assert read is not None
    return read


def states(held: HeldNodes) -> list[str]:
    return [slot.state for slot in allocation_of(line(RUNNING), REQUEST, held).slots]


def ended(state: str, reason: str = "None") -> str:
    return f"3|{state}|1795780181|1795780182|1795780187|node2|{reason}|/home/me"


def test_a_line_of_22_05_is_read_whole() -> None:
    read = line(RUNNING)
    assert read.folder == "/home/me/a|b"
    assert (read.start_s, read.end_s) == (1795780182.0, 1827316182.0)
    assert read.nodes == "node[2-4]"


@pytest.mark.parametrize("text", ["", "slurm_load_jobs error: Invalid job id", "1|RUNNING"])
def test_anything_else_is_no_line(text: str) -> None:
    assert queue_line(text) is None


def test_times_are_read_in_either_form() -> None:
    assert unix_s("1795780181") == 1795780181.0
    assert unix_s("2026-11-27T11:49:42") == pytest.approx(1795780182.0, abs=15 * 3600)
    for text in ("N/A", "NONE", "Unknown", "", "0"):
        assert unix_s(text) is None


def test_restarts_are_read() -> None:
    assert history_of("JobId=1 Requeue=1 Restarts=2 BatchFlag=1").restarts == 2
    assert history_of("slurm_load_jobs error: Invalid job id specified") == HeldNodes()


ENDING = "7|COMPLETING|1790000000|1790000001|1790000061|node[1-2]|{reason}|/shared/one"


@pytest.mark.parametrize(
    ("reason", "history", "outcome", "kind"),
    [
        ("TimeLimit", "ExitCode=0:15 PreemptTime=None", "failed", Kind.TIME_LIMIT),
        ("None", "ExitCode=0:15 PreemptTime=None", "canceled", None),
        ("None", "ExitCode=0:0 PreemptTime=2026-11-27T10:00:00", "failed", Kind.PREEMPTED),
        ("None", "ExitCode=0:0 PreemptTime=1790000050", "failed", Kind.PREEMPTED),
        ("NodeDown", "ExitCode=0:0 PreemptTime=None", "failed", Kind.NODE_LOST),
        ("None", "ExitCode=0:0 PreemptTime=None", None, None),
    ],
)
def test_while_it_ends_it_is_known_why(
    reason: str, history: str, outcome: str | None, kind: Kind | None
) -> None:
    line = queue_line(ENDING.format(reason=reason))
    assert line is not None
    held = history_of(history)
    seen = allocation_of(line, NodesRequest("slurm", 2), held)
    assert (seen.state, seen.outcome) == ("ending", outcome)
    assert (seen.problem.kind if seen.problem else None) is kind


def test_grants_are_counted_as_slurm_restarts_the_job() -> None:
    for text, restarts, grants in ((PENDING, 0, 0), (RUNNING, 0, 1), (PENDING, 1, 1)):
        assert allocation_of(line(text), REQUEST, HeldNodes(restarts=restarts)).grants == grants
    assert allocation_of(line(RUNNING), REQUEST, HeldNodes(restarts=1)).grants == 2


def test_node_states_are_read() -> None:
    assert node_states("node2|mixed\nnode3|down*\nnode3|down*\n") == {
        "node2": "mixed",
        "node3": "down*",
    }


def test_a_pending_job_holds_nothing_and_says_why() -> None:
    told = allocation_of(line(PENDING), REQUEST, HeldNodes(restarts=1))
    assert told.state == "pending"
    assert told.waiting is not None
    assert told.waiting.word == "Resources"
    assert told.waiting.expected_start_s is None
    assert [slot.state for slot in told.slots] == ["waiting"] * 3
    assert told.ends_s is None
    assert told.grants == 1


def test_slots_are_bound_in_order_until_nodes_have_told_where_they_are() -> None:
    told = allocation_of(line(RUNNING), REQUEST, HeldNodes(allocated=NODES))
    assert [slot.host for slot in told.slots] == list(NODES)
    assert told.grants == 1
    other = HeldNodes(hosts={"slurm-0": "node4"}, allocated=NODES)
    assert allocation_of(line(RUNNING), REQUEST, other).slots[0].host == "node4"


@pytest.mark.parametrize("state", ["down*", "mixed*", "down", "fail", "failing", "powering_down"])
def test_a_node_that_slurm_gave_up_is_down(state: str) -> None:
    assert states(HeldNodes(allocated=NODES, states={"node3": state})) == ["up", "down", "up"]


@pytest.mark.parametrize("state", ["mixed", "allocated", "draining", "drained", "idle", ""])
def test_a_node_that_works_is_up(state: str) -> None:
    assert states(HeldNodes(allocated=NODES, states={"node3": state})) == ["up", "up", "up"]


def test_a_slot_keeps_its_host_when_another_is_taken() -> None:
    hosts = dict(zip(REQUEST.slots, NODES, strict=True))
    assert states(HeldNodes(hosts=hosts, allocated=("node2", "node4"))) == ["up", "gone", "up"]


def test_a_node_that_is_lost_before_it_has_told_is_known_once_the_others_have() -> None:
    left = ("node2", "node4")
    assert states(HeldNodes(allocated=left)) == ["waiting", "waiting", "waiting"]
    hosts = {"slurm-0": "node2"}
    assert states(HeldNodes(hosts=hosts, allocated=left)) == ["up", "waiting", "waiting"]
    hosts = {"slurm-0": "node2", "slurm-2": "node4"}
    assert states(HeldNodes(hosts=hosts, allocated=left)) == ["up", "gone", "up"]
    assert states(HeldNodes()) == ["waiting", "waiting", "waiting"]


@pytest.mark.parametrize(
    ("state", "outcome", "kind"),
    [
        ("COMPLETED", "done", None),
        ("CANCELLED", "canceled", None),
        ("CANCELLED by 0", "canceled", None),
        ("TIMEOUT", "failed", Kind.TIME_LIMIT),
        ("DEADLINE", "failed", Kind.TIME_LIMIT),
        ("PREEMPTED", "failed", Kind.PREEMPTED),
        ("NODE_FAIL", "failed", Kind.NODE_LOST),
        ("BOOT_FAIL", "failed", Kind.NODE_LOST),
        ("OUT_OF_MEMORY", "failed", Kind.OUT_OF_MEMORY),
        ("REVOKED", "failed", Kind.NODES_TAKEN),
        ("FAILED", "failed", Kind.NOT_STARTED),
    ],
)
def test_each_end_has_its_cause(state: str, outcome: str, kind: Kind | None) -> None:
    told = allocation_of(line(ended(state)), REQUEST, HeldNodes())
    assert told.state == "ended"
    assert told.outcome == outcome
    assert (told.problem.kind if told.problem else None) is kind
    if told.problem is not None:
        assert told.problem.fix


@pytest.mark.parametrize(
    ("state", "ours"),
    [
        ("CONFIGURING", "pending"),
        ("REQUEUED", "pending"),
        ("REQUEUE_HOLD", "pending"),
        ("SUSPENDED", "pending"),
        ("RESIZING", "running"),
        ("COMPLETING", "ending"),
        ("STAGE_OUT", "ending"),
        ("SIGNALING", "ending"),
    ],
)
def test_every_state_on_the_way_is_ours(state: str, ours: str) -> None:
    assert allocation_of(line(ended(state)), REQUEST, HeldNodes()).state == ours


def test_an_allocation_survives_json() -> None:
    told = allocation_of(
        line(RUNNING), REQUEST, HeldNodes(allocated=NODES, states={"node3": "down*"})
    )
    assert msgspec.json.decode(msgspec.json.encode(told), type=type(told)) == told
