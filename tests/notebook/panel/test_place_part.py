"""Files and interpreter in the panel: folded until they are needed."""

from __future__ import annotations

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import FoundWorkplace
from jupyter_mntrain.notebook.panel.widgets import blocked
from jupyter_mntrain.verbs.panel.fields import FormField
from tests.notebook.panel.opened import until
from tests.standin.cluster import VERSIONS
from tests.wording import says

NO_PYTHON = Problem(kind=Kind.NO_PYTHON, cause="there is no <b>lm</b>", fix="create it there")


def test_the_fields_are_folded_and_what_is_filled_in_stays_in_view(open_one) -> None:
    page = open_one()
    part = page.view.place
    fields = part.bar.root.layout
    assert fields.display == "none"
    page.click(part.toggle)
    until(lambda: fields.display is None)
    page.cluster.found["muthur"] = FoundWorkplace(python="/p", versions=VERSIONS)
    page.cluster.found["wopr"] = FoundWorkplace(lacks=(NO_PYTHON,))
    part.bar.widgets["python"].value = "conda:lm"
    until(lambda: blocked(page.view.launch_bar.launch))
    until(lambda: "there is no &lt;b&gt;lm" in page.why)
    page.click(part.toggle)
    page.click(page.view.launch_bar.toggle)
    until(lambda: "--python conda:lm" in page.view.launch_bar.commands.value)
    assert fields.display is None
    page.cluster.found["wopr"] = page.cluster.found["muthur"]
    part.bar.widgets["python"].value = "conda:other"
    until(lambda: not blocked(page.view.launch_bar.launch))
    page.click(page.view.launch_bar.launch)
    until(lambda: page.jobs == [page.cluster.to_launch])
    assert "--python conda:other" in page.kept[0]["text/plain"]
    page.click(page.view.reset)
    until(lambda: fields.display == "none")


def test_a_wrong_interpreter_has_its_reason_beside_it(open_one) -> None:
    page = open_one()
    bar = page.view.place.bar
    assert page.view.place.bar.root.layout.display == "none"
    bar.widgets["python"].value = "conda:"
    until(lambda: blocked(page.view.launch_bar.launch))
    until(lambda: bar.problems["python"].value)
    assert says("conda:", bar.problems["python"].value)
    bar.widgets["python"].value = ""
    until(lambda: not blocked(page.view.launch_bar.launch))
    assert bar.problems["python"].value == ""


def test_what_is_sent_is_in_view_with_its_size_and_warnings(open_one) -> None:
    part = open_one().view.place
    assert part.bar.root.layout.display == "none"
    part.show([FormField("project", told="project /<lm>: 3 files, 1 kB", notes=(NO_PYTHON,))])
    assert part.bar.root.layout.display is None
    below = part.bar.problems["project"].value
    assert "project /&lt;lm&gt;: 3 files, 1 kB" in below
    assert "there is no &lt;b&gt;lm" in below
