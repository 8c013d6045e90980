"""What the doctor found is said at the rows of the panel, and asked for no more than needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.launch.progress import SILENT
from jupyter_mntrain.model.errors import DoctorRefusedError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.show.bundles import plain_text
from jupyter_mntrain.verbs.panel.choices import NodeChoice
from jupyter_mntrain.verbs.panel.form import Form
from jupyter_mntrain.verbs.panel.looks.doctor_look import TRUSTED_S
from jupyter_mntrain.verbs.panel.panel import Panel
from tests.doctor.healthy import GB, healthy, with_path
from tests.standin.cluster import StandInCluster
from tests.standin.screen import StillClock, make_context, run_words
from tests.verbs.panel.opened import choose, open_panel, row
from tests.wording import says

FULL = with_path(healthy(), "jobs", free_bytes=0)
"""The disk of muthur."""
SHORT = with_path(healthy(), "checkpoints", free_bytes=2 * GB)


def examined(panel: Panel) -> Form:
    ask = panel.examination(panel.form())
    assert ask is not None
    ask()
    return panel.form()


def test_healthy_nodes_are_one_line(panel: Panel) -> None:
    assert says("Doctor: examines the chosen nodes…", panel.form().doctor)
    form = examined(panel)
    assert says("checks passed on 2 nodes.", form.doctor)
    assert form.blocked is None


def test_what_stops_a_launch_is_an_error_that_leaving_the_node_out_mends(
    panel: Panel, two: StandInCluster
) -> None:
    two.doctor.case = FULL
    form = examined(panel)
    (check,) = row(form, "muthur").checks
    assert check.level == "stops"
    assert form.blocked is not None
    assert form.blocked.node == "muthur"
    assert says("1 stops a launch", form.doctor)
    assert check.fix is not None
    panel.choices = check.fix.choices
    assert examined(panel).blocked is None


def test_the_last_node_cannot_be_left_out(panel: Panel, two: StandInCluster) -> None:
    two.doctor.case = FULL
    choose(panel, nodes={"wopr": NodeChoice(is_used=False)})
    (check,) = row(examined(panel), "muthur").checks
    assert (check.level, check.fix) == ("stops", None)


def test_who_knows_better_launches_anyway_this_time(panel: Panel, two: StandInCluster) -> None:
    two.doctor.case = FULL
    assert panel.doctor.refuses(examined(panel).participants)
    form = choose(panel, skips_doctor=True)
    assert form.blocked is None
    assert [check.level for check in row(form, "muthur").checks] == ["slows"]
    assert "--skip-doctor" in panel.command(form)
    panel.launch(form, SILENT)
    assert two.unchecked == 1
    panel.choose(panel.target)
    assert panel.form().blocked is not None, "it was for that launch"


def test_a_launch_that_the_doctor_refused_is_known_until_the_next(
    panel: Panel, two: StandInCluster
) -> None:
    assert not panel.doctor.refuses(examined(panel).participants)
    two.refuses = DoctorRefusedError("its port is blocked")
    with pytest.raises(DoctorRefusedError):
        panel.launch(panel.form(), SILENT)
    assert panel.doctor.refuses(panel.form().participants)
    two.refuses = None
    panel.launch(panel.form(), SILENT)
    assert not panel.doctor.refuses(panel.form().participants)


def test_what_may_slow_it_down_is_a_warning(panel: Panel, two: StandInCluster) -> None:
    two.doctor.case = SHORT
    form = examined(panel)
    assert [check.level for check in row(form, "muthur").checks] == ["slows"]
    assert form.blocked is None


def test_who_cannot_be_asked_is_no_hindrance(panel: Panel, two: StandInCluster) -> None:
    two.doctor.refuses = RefusedError("this driver is read-only", kind=Kind.NOT_ALLOWED)
    form = examined(panel)
    assert says("this driver is read-only", form.doctor)
    assert form.blocked is None


def test_only_other_nodes_time_or_a_click_have_it_asked_again(
    two: StandInCluster, here: Path
) -> None:
    clock = StillClock()
    panel = open_panel(two, here, "small.toml", clock=clock)
    examined(panel)
    assert panel.examination(choose(panel, steps="7", name="other")) is None
    choose(panel, nodes={"muthur": NodeChoice(is_used=False)})
    examined(panel)
    # Who goes back finds the answer.
    assert panel.examination(choose(panel, nodes={})) is None
    assert [[one.node for one in asked] for asked in two.doctor.examinations] == [
        ["muthur", "wopr"],
        ["wopr"],
    ]
    clock.sleep(TRUSTED_S)
    examined(panel)
    again = panel.examination(panel.form(), anew=True)
    assert again is not None
    again()
    assert len(two.doctor.examinations) == 4


def test_it_is_asked_about_the_launch_with_its_options(panel: Panel, two: StandInCluster) -> None:
    examined(panel)
    choose(panel, port="29555", environment="DATA=/data")
    examined(panel)
    assert len(two.doctor.examinations) == 2
    spec = two.doctor.spec
    assert spec is not None
    assert (spec.port, spec.environment["DATA"]) == (29555, "/data")
    assert spec.runs_trainer


def test_options_that_are_wrong_leave_its_nodes_to_be_examined(
    panel: Panel, two: StandInCluster
) -> None:
    choose(panel, environment="DATA")  # that this environment does not have
    examined(panel)
    assert two.doctor.spec is None
    assert [one.node for one in two.doctor.examinations[0]] == ["muthur", "wopr"]


def test_a_node_that_tells_nothing_is_a_warning(panel: Panel, two: StandInCluster) -> None:
    two.doctor.silent = {
        "wopr": Problem(kind=Kind.SLOW_TO_ANSWER, cause="did not answer within 15 s")
    }
    (check,) = row(examined(panel), "wopr").checks
    assert check.level == "slows"
    assert check.problem is not None
    assert says("was not checked: did not answer", check.problem.cause)


def test_nobody_is_asked_without_a_chosen_node(panel: Panel) -> None:
    form = choose(panel, others_take_part=False)
    assert form.doctor == ""
    assert panel.examination(form) is None


def test_a_launch_keeps_what_it_said(panel: Panel, two: StandInCluster) -> None:
    note = Problem(kind=Kind.NODE, cause="its clock is 90 s ahead", node="wopr")
    two.notes = (note,)
    panel.launch(panel.form(), SILENT)
    assert panel.said == (note,)


def test_the_panel_as_text_has_the_line(two: StandInCluster, here: Path) -> None:
    two.doctor.case = FULL
    outcome = run_words(["panel", "small.toml"], make_context(two, directory=here))
    assert isinstance(outcome.data, dict)
    assert says("1 stops a launch", outcome.data["doctor"])
    assert says("Doctor, ", plain_text(outcome.renderable))
