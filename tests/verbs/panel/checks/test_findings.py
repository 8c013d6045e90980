"""Findings of the checks: at the row they concern, and the first error is what blocks."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.api import PortStatus
from jupyter_mntrain.model.errors import NodeError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.verbs.panel.checks import Findings, check_port
from jupyter_mntrain.verbs.panel.choices import Choices
from jupyter_mntrain.verbs.panel.node_row import FormRow, RowCheck, node_row
from tests.standin.cluster import node
from tests.wording import says

SLOW = RowCheck(level="slows", problem=Problem(kind=Kind.BAD_SPEC, cause="slow", node="b"))
CHOICES = Choices(port="29500")


@pytest.fixture
def rows() -> tuple[FormRow, FormRow]:
    views = [node("a", 1), node("b", 2)]
    usable = [view.info for view in views if view.info]
    one, other = (node_row(view, Choices(), usable, now_s=0.0) for view in views)
    return one, other


def test_what_passed_is_counted_where_nothing_was_found(rows: tuple[FormRow, FormRow]) -> None:
    findings = Findings(rows)
    for name in "aab":
        findings.passed(name)
    findings.put("b", SLOW)
    a, b = findings.rows(rows)
    assert [(one.level, one.passed, one.text) for one in a.checks] == [
        ("passed", 2, "2 checks passed")
    ]
    assert [one.level for one in b.checks] == ["slows"]
    assert findings.warnings == ["b"]
    assert findings.first_error is None


def test_a_row_that_takes_no_part_says_nothing_of_what_passed(
    rows: tuple[FormRow, FormRow],
) -> None:
    unused = msgspec.structs.replace(rows[0], is_used=False)
    findings = Findings([unused])
    findings.passed("a")
    assert findings.rows([unused]) == (unused,)


def test_a_finding_at_a_row_does_not_name_the_node_again(rows: tuple[FormRow, FormRow]) -> None:
    findings = Findings(rows)
    findings.put("b", SLOW)
    (check,) = findings.rows(rows)[1].checks
    assert check.problem is not None
    assert check.problem.node is None


def test_without_such_a_row_it_is_told_with_the_settings(rows: tuple[FormRow, FormRow]) -> None:
    findings = Findings(rows)
    findings.put("gone", SLOW)
    findings.add(NodeError("went away", node="lost"))
    findings.add(SpecError("bad port"), to_settings=True)
    assert [one.problem.node for one in findings.settings if one.problem] == ["b", "lost", None]
    assert findings.rows(rows) == rows


def test_the_first_error_stays_the_one_that_blocks(rows: tuple[FormRow, FormRow]) -> None:
    findings = Findings(rows)
    findings.put("b", SLOW)
    findings.add(NodeError("went away", kind=Kind.SILENT, node="b"))
    findings.add(SpecError("bad", kind=Kind.BAD_SPEC))
    assert findings.first_error is not None
    assert (findings.first_error.kind, findings.first_error.node) == (Kind.SILENT, "b")


def test_an_error_that_its_row_came_with_blocks_too(rows: tuple[FormRow, FormRow]) -> None:
    silent = RowCheck(level="stops", problem=Problem(kind=Kind.SILENT, cause="went away"))
    findings = Findings([msgspec.structs.replace(rows[0], checks=(silent,)), rows[1]])
    assert findings.first_error is not None
    assert (findings.first_error.kind, findings.first_error.node) == (Kind.SILENT, "a")


TAKEN = Problem(kind=Kind.PORT_TAKEN, cause="port 29500 is in use")


@pytest.mark.parametrize(
    ("next_free", "chosen", "fix"), [(29501, "29501", "use port 29501"), (None, None, "leave the")]
)
def test_a_taken_port_blocks_and_the_next_free_one_is_offered(
    rows: tuple[FormRow, FormRow], next_free: int | None, chosen: str | None, fix: str
) -> None:
    findings = Findings(rows)
    status = PortStatus(port=29500, address="10.0.0.1", problem=TAKEN, next_free=next_free)
    check_port(rows[0], CHOICES, status, findings)
    (check,) = findings.rows(rows)[0].checks
    assert check.level == "stops"
    assert check.problem is not None
    assert says(fix, check.problem.fix)
    assert (check.fix.choices.port if check.fix else None) == chosen


def test_a_port_that_nobody_could_look_at_is_a_warning(rows: tuple[FormRow, FormRow]) -> None:
    findings = Findings(rows)
    check_port(rows[0], CHOICES, NodeError("no answer", kind=Kind.NO_ANSWER), findings)
    (check,) = findings.rows(rows)[0].checks
    assert (check.level, check.fix) == ("slows", None)
    assert findings.first_error is None


def test_a_free_port_passes_and_none_chosen_is_not_looked_at(
    rows: tuple[FormRow, FormRow],
) -> None:
    findings = Findings(rows)
    check_port(rows[0], CHOICES, PortStatus(port=29500, address="10.0.0.1"), findings)
    check_port(rows[1], Choices(), PortStatus(port=29500, address="10.0.0.1"), findings)
    a, b = findings.rows(rows)
    assert [one.passed for one in a.checks] == [1]
    assert b.checks == ()


def test_what_is_no_port_stands_with_the_settings(rows: tuple[FormRow, FormRow]) -> None:
    findings = Findings(rows)
    check_port(rows[0], Choices(port="ssh"), None, findings)
    assert [one.level for one in findings.settings] == ["stops"]
