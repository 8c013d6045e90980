"""Submit panel's widgets: their thread, what they show, and what clicks start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ipywidgets
import pytest

from jupyter_mntrain.model.errors import NodeError, RefusedError
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import RankStack
from jupyter_mntrain.notebook.panel.launch_bar import RETIRED
from jupyter_mntrain.notebook.panel.widgets import blocked
from tests.hostile import HOSTILE, assert_safe, poisoned, strings
from tests.notebook.panel.opened import until
from tests.standin.cluster import node, silent
from tests.verbs.panel.opened import RECIPE
from tests.wording import says

WIDGET = "application/vnd.jupyter.widget-view+json"


def test_a_click_only_enqueues_and_the_panels_own_thread_does_the_rest(open_one) -> None:
    page = open_one()
    assert page.why.startswith("3 ranks on 2 nodes. auto: float32, sdpa (muthur: GPU 0, RTX 3090,")
    page.row("wopr").use.value = False
    until(lambda: page.why.startswith("1 rank on 1 node."))
    page.row("wopr").use.value = True
    page.row("wopr").gpus.value = "gpu1"
    until(lambda: page.why.startswith("2 ranks on 2 nodes."))
    assert page.form_threads == {"mntrain-panel"}


def test_what_the_panel_shows_by_itself_was_chosen_by_nobody(open_one) -> None:
    page = open_one()
    page.view.settings.widgets["changes"].value = "pipeline.microbatches=12"
    until(lambda: page.view.settings.widgets["microbatches"].value == 12)
    assert page.panel.choices.microbatches is None
    assert page.panel.choices.schedule is None
    page.view.settings.widgets["microbatches"].value = 6
    until(lambda: page.panel.choices.microbatches == 6)
    page.click(page.view.reset)
    until(lambda: page.view.settings.widgets["changes"].value == "")
    assert page.panel.choices.microbatches is None


def test_where_a_page_has_no_widgets_its_text_is_redrawn_until_it_is_whole(open_one) -> None:
    page = open_one()
    assert says("environment of the Jupyter server", page.view.bundle["text/plain"])
    page.row("wopr").use.value = False
    until(lambda: page.why.startswith("1 rank on 1 node."))
    assert page.kept == [], "what is clicked is not drawn again"
    page.view.root.comm.handle_close({})
    page.row("wopr").use.value = True
    until(lambda: page.kept and "wopr" in page.kept[-1]["text/plain"])
    until(lambda: page.kept[-1]["text/plain"] == page.view.bundle["text/plain"])
    assert len(page.kept) > 1


def test_the_head_is_one_of_them(open_one) -> None:
    page = open_one()
    assert (page.row("muthur").head.value, page.row("wopr").head.value) == ("head", None)
    page.row("wopr").head.value = "head"
    until(lambda: page.row("muthur").head.value is None)
    assert page.panel.choices.head == "wopr"


def test_a_node_that_comes_or_goes_is_a_row_more_or_a_reason(open_one) -> None:
    page = open_one()
    here = page.cluster.nodes()
    page.cluster.become(*here, node("zebra", 7, gpus=1))
    until(lambda: page.why.startswith("4 ranks on 3 nodes."))
    page.cluster.become(*here, node("zebra", 7, gpus=1, liveness="lost", reason="is silent"))
    until(lambda: page.why.startswith("3 ranks on 2 nodes. 1 warning at zebra."))
    assert page.row("zebra").use.disabled


def test_a_recipe_changed_on_disk_is_read_again(open_one, directory: Path) -> None:
    page = open_one()
    (directory / "small.toml").write_text(
        RECIPE.replace("microbatches = 6", 'schedule = "1f1b"\nmicrobatches = 1')
    )
    page.cluster.become(*page.cluster.nodes())
    until(lambda: blocked(page.view.launch_bar.launch))
    assert says("fewer than the 3 pipeline stages", page.why)


def test_a_button_mends_what_is_wrong(open_one) -> None:
    page = open_one()
    page.row("wopr").gpus.value = "7"
    until(lambda: blocked(page.view.launch_bar.launch))
    assert says("has 2 GPUs, 7 requested", page.why)
    _, button = page.row("wopr").checks.children[0].children
    page.click(button)
    until(lambda: page.why.startswith("3 ranks on 2 nodes. auto:"))
    assert page.row("wopr").gpus.value == ""


@pytest.mark.wording  # it waits for words
def test_lines_that_are_replaced_are_ended(open_one) -> None:
    page = open_one()

    def living() -> int:
        return len(ipywidgets.widgets.widget._instances)

    page.row("wopr").gpus.value = "7"
    until(lambda: blocked(page.view.launch_bar.launch))
    assert says("has 2 GPUs, 7 requested", page.why)
    before = living()
    for number in range(8, 14):
        page.row("wopr").gpus.value = str(number)
        until(lambda number=number: says(f"has 2 GPUs, {number} requested", page.why))
    until(lambda: living() == before)


def test_launch_shows_the_job_below_and_stop_asks_first(open_one) -> None:
    page = open_one()
    page.cluster.to_launch.become("running")
    page.click(page.view.launch_bar.launch)
    until(lambda: page.jobs == [page.cluster.to_launch])
    (job,) = page.jobs
    (kept,) = page.kept
    assert f"Started as {job.id}:" in kept["text/plain"]
    assert "Launch it" not in kept["text/plain"]
    assert {WIDGET, "application/vnd.mntrain.panel+json"} <= kept.keys()
    until(lambda: "running" in page.view.job_bar.line.value)
    assert says("as launched at", page.view.note.value)
    until(lambda: not blocked(page.view.launch_bar.launch))
    page.click(page.view.job_bar.stop)
    until(lambda: "Unsaved progress is lost" in page.view.job_bar.line.value)
    assert job.calls == []
    page.click(page.view.job_bar.keep)
    until(lambda: page.view.job_bar.stop.layout.display is None)
    page.click(page.view.job_bar.stop)
    until(lambda: page.view.job_bar.stop_now.layout.display is None)
    page.click(page.view.job_bar.stop_now)
    until(lambda: job.calls)
    assert job.calls[0][0] == "stop"


def test_an_ended_job_is_resumed_beside_its_launch(open_one) -> None:
    page = open_one()
    page.cluster.to_launch.become("running")
    bar = page.view.launch_bar
    page.view.fields.widgets["steps"].value = "900"
    page.click(bar.launch)
    until(lambda: page.jobs == [page.cluster.to_launch])
    until(lambda: not blocked(bar.launch))
    assert bar.resume.layout.display == "none"
    page.cluster.to_launch.become("failed")
    page.cluster.become(*page.cluster.nodes())
    until(lambda: bar.resume.layout.display is None)
    assert bar.resume.description == "Resume from step 400"
    (line,) = bar.resume_lines.children
    assert "Changed: " in line.children[0].value
    page.view.fields.widgets["steps"].value = "901"
    until(lambda: "901" in bar.resume_lines.children[0].children[0].value)
    until(lambda: not blocked(bar.resume))
    page.click(bar.resume)
    until(lambda: len(page.jobs) == 2)
    assert page.cluster.launches[-1].origin.step == 400


def test_no_microbatches_is_an_error_and_not_one(open_one) -> None:
    page = open_one()
    field = page.view.settings.widgets["microbatches"]
    field.value = 0
    until(lambda: blocked(page.view.launch_bar.launch))
    assert field.value == 0
    assert says("microbatches", page.why)
    field.value = 4
    until(lambda: not blocked(page.view.launch_bar.launch))


def test_stacks_of_its_ranks_are_shown_by_a_button(open_one) -> None:
    page = open_one()
    page.cluster.to_launch.become("running")
    page.click(page.view.launch_bar.launch)
    until(lambda: page.jobs == [page.cluster.to_launch])
    (job,) = page.jobs
    stack = RankStack(
        rank=Rank(0), doing="busy", where="load (data.py:12)", text="Thread 1\n\nmain <b>"
    )
    job.at = {"wopr": [stack], "muthur": NodeError("connection refused", node="muthur")}
    until(lambda: not blocked(page.view.job_bar.stacks))
    page.click(page.view.job_bar.stacks)
    until(lambda: "main &lt;b&gt;" in page.view.job_bar.shown_stacks.value)
    shown = page.view.job_bar.shown_stacks.value
    assert "rank 0 on wopr: in its own code, load (data.py:12)" in shown
    assert "muthur: connection refused" in shown
    assert "Thread 1" not in shown


def test_a_refusal_says_that_nothing_was_started(open_one) -> None:
    page = open_one()
    page.cluster.refuses = RefusedError("GPU 0 was taken", fix="wait for it", node="wopr")
    page.click(page.view.launch_bar.launch)
    until(lambda: "Nothing was started." in page.why)
    assert says("wopr: GPU 0 was taken. Fix: wait for it.", page.why)
    until(lambda: not blocked(page.view.launch_bar.launch))
    assert "Nothing was started." in page.why
    assert page.jobs == []


def test_links_that_were_not_measured_can_be(open_one) -> None:
    page = open_one()
    assert page.view.prediction.measure.layout.display == "none"
    page = open_one(node("a", 1, capacity=None), node("b", 2, capacity=None))
    assert "link not measured" in page.view.prediction.predicted.value
    page.click(page.view.prediction.measure)
    until(lambda: page.cluster.measured)
    ids = [view.info.node_id for view in page.cluster.nodes()]
    assert page.cluster.measured == [tuple(ids)]
    until(lambda: not blocked(page.view.prediction.measure))


def test_the_exact_commands_are_shown_and_hidden(open_one) -> None:
    page = open_one()
    page.click(page.view.launch_bar.toggle)
    until(lambda: "torch.distributed.run" in page.view.launch_bar.commands.value)
    assert (
        "%mntrain launch small.toml --member muthur --member wopr"
        in page.view.launch_bar.commands.value
    )
    page.click(page.view.launch_bar.toggle)
    until(lambda: page.view.launch_bar.commands.value == "")


def test_what_a_node_says_is_shown_and_never_run(open_one) -> None:
    evil = "<img src=x onerror=alert(1)>"
    page = open_one(node(evil, 1), node("other", 2, liveness="lost", reason=f"{evil} is gone"))
    page.row("other").use.value = True
    until(lambda: blocked(page.view.launch_bar.launch))
    page.click(page.view.launch_bar.toggle)
    shown = [page.why, page.view.launch_bar.commands.value, page.view.prediction.predicted.value]
    shown += [line.children[0].value for line in page.row("other").checks.children]
    assert all("<img" not in one for one in shown)
    assert any("&lt;img" in one for one in shown)


def test_something_unforeseen_is_said_and_the_panel_goes_on(open_one, monkeypatch) -> None:
    page = open_one()

    def broken() -> Any:
        raise RuntimeError("the wire")

    with monkeypatch.context() as patched:
        patched.setattr(page.panel, "form", broken)
        page.row("wopr").use.value = False
        until(lambda: "RuntimeError: the wire" in page.why)
    page.row("wopr").use.value = True
    until(lambda: page.why.startswith("3 ranks on 2 nodes. auto:"))


# In a shell


@pytest.fixture
def in_notebook(notebook, tmp_path):
    (tmp_path / "small.toml").write_text(RECIPE)
    return notebook


def test_the_magic_shows_the_panel_and_a_place_below_it(in_notebook, cluster) -> None:
    panel, below = in_notebook.run("%mntrain panel small.toml").outputs
    assert WIDGET in panel.data
    # By this the page knows it when its kernel is gone.
    assert "application/vnd.mntrain.panel+json" in panel.data
    # Where there are no widgets, as in a saved notebook, the text says the same.
    assert "%mntrain launch small.toml --member muthur" in panel.data["text/plain"]
    assert below.data["text/plain"] == "A job launched here is shown below the panel."
    assert len(cluster.listeners) == 1
    first = in_notebook.extension.screen._panel
    in_notebook.run("%mntrain panel small.toml")
    until(lambda: RETIRED in first.launch_bar.why.value)
    assert blocked(first.launch_bar.launch)
    assert len(cluster.listeners) == 1
    in_notebook.extension.close()
    assert cluster.listeners == []


def test_without_ipywidgets_it_is_text_with_the_reason(in_notebook, monkeypatch) -> None:
    for name in list(sys.modules):
        if name.startswith("jupyter_mntrain.notebook.panel."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    said = in_notebook.words("%mntrain panel small.toml")
    assert "ipywidgets is not installed, so the panel is text only: pip install ipywidgets" in said
    assert "%mntrain launch small.toml --member" in said


def test_no_widget_shows_text_of_a_node_as_it_is(open_one) -> None:
    nodes = (node("muthur", 2, gpus=1), node("wopr", 1, torch="2.9"), silent("10.0.0.9:1", "x"))
    page = open_one(*map(poisoned, nodes))
    until(lambda: len(page.view.nodes.rows) == 3)
    page.view.launch_bar.complain(HOSTILE)
    seen = 0
    for widget in everything_in(page.view.root):
        for name in set(widget.traits()) - {"placeholder"}:  # ipywidgets' own is invisible
            for text in strings(getattr(widget, name)):
                assert_safe(text, what=(type(widget), name))
                seen += "\\u202e" in text
        assert "<script" not in str(getattr(widget, "value", ""))
    assert seen > 10
    assert_safe(page.view.bundle["text/plain"])


def everything_in(widget: Any) -> Iterator[Any]:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from everything_in(child)
