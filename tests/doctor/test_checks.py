"""Checks: each names the fault that is made, with a fix, and says nothing of a healthy node."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import get_args

import msgspec
import pytest

from jupyter_mntrain.doctor.check import Case, Check, Finding, Level, Unsent
from jupyter_mntrain.doctor.every import EVERY, examine
from jupyter_mntrain.doctor.node import ClockCheck
from jupyter_mntrain.doctor.workload.contents import ImportedModules
from jupyter_mntrain.doctor.workload.scripts import ScriptFiles
from tests.doctor.faults import FAULTS
from tests.doctor.faults.fault import Fault
from tests.doctor.faults.scripts import launching, with_input
from tests.doctor.healthy import changed, healthy, with_inventory, with_node
from tests.rows import same_rows
from tests.wording import says


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
    same_rows(
        {check.id for check in EVERY},
        {fault.check for fault in FAULTS},
        "check '{}' is never seen to find anything: make its fault in tests/doctor/faults/",
        "tests/doctor/faults/ makes a fault of check '{}', which EVERY of doctor/every.py has not:"
        " add the check there, or remove the fault",
    )


def test_ids_and_titles_are_unique():
    assert len({check.id for check in EVERY}) == len({check.title for check in EVERY}) == len(EVERY)


class Saying(Check):
    """A check that says what it is given."""

    def __init__(self, said: Sequence[Finding]) -> None:
        self._said = said

    def findings(self, case: Case) -> Sequence[Finding]:
        return self._said


def test_the_worst_comes_first():
    findings = [Finding("a-check", "muthur", one, "said") for one in get_args(Level)]
    for said in permutations(findings):
        found = examine(Case(nodes=()), [Saying(said)])
        assert [one.level for one in found] == ["stops", "slows", "unknown", "passed"]


def test_equally_bad_findings_stay_in_the_order_of_the_checks():
    said = tuple(Finding(name, "muthur", "slows", "said") for name in ("z-check", "a-check"))
    assert examine(Case(nodes=()), [Saying((one,)) for one in said]) == said


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


@pytest.mark.parametrize(
    ("unsent", "fix"),
    [
        ({"a.txt": Unsent(), "b.txt": Unsent()}, ("--file a.txt --file b.txt",)),
        ({"a.txt": Unsent(), "../b.txt": Unsent()}, ("--file a.txt, ",)),
        (
            {"a.txt": Unsent("--file a.txt"), "b.txt": Unsent("--project ..")},
            ("--file a.txt --project ..",),
        ),
        ({"a.txt": Unsent("--file a.txt"), "b.txt": Unsent("the line !b.txt")}, ("!b.txt",)),
    ],
)
def test_all_files_that_are_not_sent_are_named_with_what_sends_them(
    unsent: dict[str, Unsent], fix: tuple[str, ...]
):
    text = "\n".join(f"open({one!r})" for one in unsent)
    found = ScriptFiles().findings(launching(healthy(), text, unsent=unsent))
    problem = next(one.problem for one in found if one.problem)
    assert ", ".join(unsent) in problem.cause
    assert "1, 2" in problem.cause
    assert all(one in problem.fix for one in fix)
    assert "--file ../" not in problem.fix


def test_all_files_that_a_node_lacks_are_named():
    case = launching(healthy(), "open('/data/a')\nopen('/data/b')")
    for path in ("/data/a", "/data/b"):
        case = with_input(case, path)
    (problem,) = (one.problem for one in ScriptFiles().findings(case) if one.problem)
    assert "/data/a, /data/b" in problem.cause
    assert problem.node == "muthur"


@pytest.mark.parametrize(
    ("has_project", "fix"), [(True, "--env PYTHONPATH=FOLDER"), (False, "--project DIR")]
)
def test_who_sends_a_project_is_not_told_to(has_project: bool, fix: str):
    case = changed(launching(healthy(), "import mine", has_project=has_project), lacking=("mine",))
    (problem,) = (one.problem for one in ImportedModules().findings(case) if one.problem)
    assert says(fix, problem.fix)
