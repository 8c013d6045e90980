"""Checks: each names the fault that is made, with a fix, and says nothing of a healthy node."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.doctor.check import Case
from jupyter_mntrain.doctor.every import EVERY, examine
from jupyter_mntrain.doctor.node.clock import ClockCheck
from tests.doctor.faults import FAULTS
from tests.doctor.faults.fault import Fault
from tests.doctor.healthy import changed, healthy, with_inventory, with_node


def test_nothing_is_said_of_healthy_nodes():
    assert {one.level for one in examine(healthy())} == {"passed"}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.check}: {fault.made}")
def test_a_fault_is_named_by_its_check_alone(fault: Fault):
    found = [one for one in examine(fault.make(healthy())) if one.level != "passed"]
    assert [(one.check, one.level) for one in found] == [(fault.check, fault.level)]
    (problem,) = (one.problem for one in found if one.problem is not None)
    assert problem.node == "muthur"
    assert problem.cause
    assert problem.fix


def test_every_check_has_a_fault():
    assert {fault.check for fault in FAULTS} == {check.id for check in EVERY}


def test_ids_and_titles_are_unique():
    assert len({check.id for check in EVERY}) == len({check.title for check in EVERY}) == len(EVERY)


def test_the_worst_comes_first():
    slows = next(one for one in FAULTS if one.level == "slows")
    case = FAULTS[0].make(slows.make(healthy()))
    assert [one.level for one in examine(case)][:3] == ["stops", "slows", "passed"]


def test_of_an_agent_that_does_not_tell_all_facts_are_unknown():
    case = with_node(healthy(), lambda node: msgspec.structs.replace(node, facts=None))
    found = [one for one in examine(case) if one.node == "muthur"]
    assert {one.level for one in found} == {"unknown"}
    assert {one.level for one in examine(case) if one.node != "muthur"} == {"passed"}


@pytest.mark.parametrize(("nodes", "blamed"), [(3, {"muthur"}), (2, {"muthur"})])
def test_a_clock_is_judged_by_most_of_them(nodes: int, blamed: set[str]):
    case = Case(nodes=healthy().nodes[:nodes])
    case = with_node(case, lambda node: msgspec.structs.replace(node, clock_ahead_s=-5.0))
    found = ClockCheck().findings(case)
    assert {one.node for one in found if one.level == "slows"} == blamed


def test_a_drivers_wrong_clock_blames_no_node_of_three():
    case = healthy()
    for at in range(3):
        case = with_node(case, lambda node: msgspec.structs.replace(node, clock_ahead_s=60.0), at)
    assert {one.level for one in ClockCheck().findings(case)} == {"passed"}


def test_a_clock_is_not_blamed_for_a_slow_answer():
    def slow(node):
        return msgspec.structs.replace(node, clock_ahead_s=-4.0, clock_error_s=4.0)

    assert {one.level for one in ClockCheck().findings(with_node(healthy(), slow))} == {"passed"}


@pytest.mark.parametrize("governors", [(), ("schedutil",)])
def test_governors_that_follow_the_load_pass(governors):
    processors = healthy().nodes[1].facts.processors
    case = changed(
        healthy(),
        processors=msgspec.structs.replace(processors, governors=governors, driver=""),
    )
    assert {one.level for one in examine(case)} == {"passed"}


def test_powersave_under_intel_pstate_passes():
    processors = healthy().nodes[1].facts.processors
    own = msgspec.structs.replace(processors, governors=("powersave",), driver="intel_pstate")
    assert {one.level for one in examine(changed(healthy(), processors=own))} == {"passed"}


def test_a_small_machine_is_not_short_of_memory():
    case = with_inventory(healthy(), memory_total_bytes=4 << 30, memory_available_bytes=3 << 30)
    assert {one.level for one in examine(case)} == {"passed"}
