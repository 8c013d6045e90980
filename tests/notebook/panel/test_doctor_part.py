"""The doctor in the panel: asked in the background, said in a line and at the rows."""

from __future__ import annotations

import threading

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.notebook.panel.widgets import blocked
from tests.doctor.healthy import healthy, with_path
from tests.notebook.panel.opened import Open, until


def line(page: Open) -> str:
    return str(page.view.doctor.line.value)


def examine_again(page: Open) -> None:
    """What it found may be shown before it has ended, and nobody can click until then."""
    until(lambda: not blocked(page.view.doctor.again))
    page.click(page.view.doctor.again)


def test_it_is_asked_when_the_panel_opens_and_when_other_nodes_are_chosen(open_one) -> None:
    page = open_one()
    asked = page.cluster.doctor.examinations
    until(lambda: len(asked) == 1)
    until(lambda: "on 2 nodes" in line(page))
    page.view.settings.widgets["port"].value = "29555"
    until(lambda: page.panel.choices.port == "29555")
    page.row("wopr").use.value = False
    until(lambda: len(asked) == 2)
    until(lambda: "on 1 node." in line(page))
    examine_again(page)
    until(lambda: len(asked) == 3)


def test_no_click_waits_for_it(open_one) -> None:
    page = open_one()
    until(lambda: "on 2 nodes" in line(page))
    goes_on, examine = threading.Event(), page.cluster.doctor.examine

    def slow(**how):
        goes_on.wait(30)
        return examine(**how)

    page.cluster.doctor.examine = slow
    page.row("wopr").use.value = False
    until(lambda: page.why.startswith("1 rank on 1 node."))
    page.row("wopr").use.value = True
    until(lambda: page.why.startswith("3 ranks on 2 nodes."))
    goes_on.set()


def test_what_stops_a_launch_blocks_it_at_the_row(open_one) -> None:
    page = open_one()
    until(lambda: "on 2 nodes" in line(page))
    page.cluster.doctor.case = with_path(healthy(), "jobs", free_bytes=0)
    examine_again(page)
    until(lambda: len(page.row("muthur").checks.children[0].children) == 2)
    (_, leave) = page.row("muthur").checks.children[0].children
    until(lambda: blocked(page.view.launch_bar.launch))
    page.click(leave)
    until(lambda: page.why.startswith("2 ranks on 1 node."))


def test_what_it_refuses_is_launched_anyway_by_a_checkbox_that_is_hidden_before(open_one) -> None:
    page = open_one()
    until(lambda: "on 2 nodes" in line(page))
    part, launch = page.view.doctor, page.view.launch_bar.launch
    assert part.anyway.layout.display == "none"
    page.cluster.doctor.case = with_path(healthy(), "jobs", free_bytes=0)
    examine_again(page)
    until(lambda: part.anyway.layout.display is None and blocked(launch))
    part.anyway.value = True
    until(lambda: not blocked(launch))
    page.click(launch)
    until(lambda: page.cluster.unchecked == 1)


def test_what_a_launch_says_stays_below_the_line(open_one) -> None:
    page = open_one()
    page.cluster.notes = (Problem(kind=Kind.NODE, cause="its clock is ahead", node="wopr"),)
    page.click(page.view.launch_bar.launch)
    until(lambda: len(page.view.doctor.said.children) == 1)
