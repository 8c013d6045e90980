"""Panel form: rows and checks."""

from __future__ import annotations

from pathlib import Path

import msgspec

from jupyter_mntrain.cluster import NodeView
from jupyter_mntrain.launch.progress import SILENT
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import Availability, GpuProcess
from jupyter_mntrain.verbs.panel.choices import Choices, NodeChoice
from jupyter_mntrain.verbs.panel.panel import Panel
from tests.standin.availability import offered
from tests.standin.cluster import StandInCluster, node, silent
from tests.verbs.panel.opened import choose, kinds, open_panel, row, words
from tests.wording import says


def test_nothing_chosen_is_what_a_launch_without_members_takes(panel: Panel) -> None:
    form = panel.form()
    assert form.members == ("muthur", "wopr")
    assert form.blocked is None
    assert form.summary == "3 ranks on 2 nodes."
    assert [one.is_head for one in form.rows] == [True, False]
    assert row(form, "wopr").gpu_hint == "2 of 2 idle"
    assert row(form, "wopr").gpu_options == ("2", "1", "gpu0", "gpu1")
    assert row(form, "wopr").interfaces[0] == ("auto: eno1, 941\u00a0Mbit/s", None)
    assert [check.text for one in form.rows for check in one.checks] == ["4 checks passed"] * 2


def test_nodes_without_gpus_are_left_out_where_others_have_some(here: Path) -> None:
    cluster = StandInCluster([node("a", 1), node("b", 2, gpus=1)])
    assert open_panel(cluster, here, "small.toml").form().members == ("b",)
    assert open_panel(StandInCluster([node("a", 1)]), here).form().members == ("a",)


def test_a_node_that_does_not_answer_cannot_be_chosen_and_says_why(here: Path) -> None:
    lost = silent("10.0.0.9:8765", "connection refused", fix="start its agent")
    cluster = StandInCluster([node("a", 1), node("b", 2, liveness="suspect"), lost])
    panel = open_panel(cluster, here, "small.toml")
    form = panel.form()
    assert [one.can_be_used for one in form.rows] == [True, False, False]
    assert kinds(form) == {"b": [Kind.SILENT], "10.0.0.9:8765": [Kind.NO_ANSWER]}
    assert says("silent for 1", words(form))
    assert says("connection refused. Fix: start its agent.", words(form))
    assert form.blocked is None
    form = choose(panel, nodes={"b": NodeChoice(is_used=True)})
    assert form.blocked is not None
    assert (form.blocked.kind, form.blocked.node) == (Kind.SILENT, "b")
    fix = row(form, "b").checks[0].fix
    assert fix is not None
    panel.choices = fix.choices
    assert panel.form().blocked is None


def test_a_drained_node_cannot_be_chosen_except_by_a_job_that_waits(here: Path) -> None:
    drained = Problem(kind=Kind.DRAINED, cause="its owner drained it: exam", fix="leave it out")
    view = offered(node("b", 2, gpus=1), Availability(), drained)
    panel = open_panel(StandInCluster([node("a", 1, gpus=1), view]), here, "small.toml")
    form = panel.form()
    assert (row(form, "b").can_be_used, row(form, "b").state) == (False, "drained")
    assert kinds(form) == {"b": [Kind.DRAINED]}
    assert form.members == ("a",)
    form = choose(panel, nodes={"b": NodeChoice(is_used=True)})
    assert form.blocked is not None
    assert (form.blocked.kind, form.blocked.node) == (Kind.DRAINED, "b")
    form = choose(panel, waits=True)
    assert (row(form, "b").can_be_used, form.blocked) == (True, None)
    assert "b" in form.members


def test_gpus_that_are_not_lent_are_no_choice(here: Path) -> None:
    view = offered(node("a", 1, gpus=2), Availability(gpus=(1,)))
    panel = open_panel(StandInCluster([view]), here, "small.toml")
    shown = row(panel.form(), "a")
    assert (shown.gpu_options, shown.gpu_hint) == (("1", "gpu1"), "1 of 1 idle, 1 not offered")
    form = choose(panel, nodes={"a": NodeChoice(gpus="gpu0")})
    assert form.blocked is not None
    assert says("GPU 0 not offered by its owner", form.blocked.cause)


def test_a_node_of_the_last_time_that_is_gone_is_not_forgotten_in_silence(panel: Panel) -> None:
    form = choose(panel, nodes={"joshua": NodeChoice(is_used=True)})
    assert form.blocked is not None
    assert (form.blocked.kind, form.blocked.node) == (Kind.SILENT, "joshua")
    assert row(form, "joshua").checks[0].fix is not None


def test_what_cannot_be_had_stands_at_its_row_with_a_button(panel: Panel) -> None:
    form = choose(panel, nodes={"wopr": NodeChoice(gpus="3"), "muthur": NodeChoice(gpus="x")})
    (wopr,) = row(form, "wopr").checks
    assert kinds(form) == {"wopr": [Kind.BAD_SPEC], "muthur": [Kind.BAD_SPEC]}
    assert says("has 2 GPUs, 3 requested. Fix: ask for wopr:2 at most.", wopr.text)
    assert wopr.fix is not None
    assert wopr.fix.label == "Use 2 idle GPUs"
    assert says("neither a number nor GPU ids", row(form, "muthur").checks[0].text)
    assert form.blocked is not None
    panel.choices = msgspec.structs.replace(
        wopr.fix.choices, nodes=wopr.fix.choices.nodes | {"muthur": NodeChoice()}
    )
    assert panel.form().blocked is None


def test_interfaces_that_do_not_meet_block_the_launch(panel: Panel) -> None:
    form = choose(panel, nodes={"wopr": NodeChoice(interface="lo")})
    assert form.blocked is not None
    assert says("no network is shared", form.blocked.cause)
    form = choose(panel, nodes={"wopr": NodeChoice(interface="eth9")})
    assert "'eth9'" in words(form)
    assert ("eth9, not available now", "eth9") in row(form, "wopr").interfaces


def test_a_version_that_differs_is_told_with_what_mends_it_and_may_be_accepted(
    here: Path,
) -> None:
    nodes = [node("a", 1), node("b", 2), node("c", 3, torch="2.12.0")]
    panel = open_panel(StandInCluster(nodes), here, "small.toml")
    (check,) = row(panel.form(), "c").checks
    assert check.level == "stops"
    assert says("torch 2.12.0, the others have 2.13.0. Fix: pip install torch==2.13.0", check.text)
    blocked = panel.form().blocked
    assert blocked is not None
    assert (blocked.kind, blocked.node) == (Kind.MIXED_VERSIONS, "c")
    assert check.fix is not None
    assert check.fix.label == "Launch anyway"
    panel.choices = check.fix.choices
    form = panel.form()
    assert [one.level for one in row(form, "c").checks] == ["slows"]
    assert form.blocked is None
    assert form.summary == "3 ranks on 3 nodes. 1 warning at c."
    assert "--mixed-versions" in panel.command(form)


def test_busy_gpus_are_no_error_for_a_job_that_may_wait(here: Path) -> None:
    cluster = StandInCluster([busy(node("a", 1, gpus=1)), node("b", 2, gpus=1)])
    panel = open_panel(cluster, here, "small.toml")
    panel.choices = Choices(nodes={name: NodeChoice(is_used=True, gpus="1") for name in "ab"})
    assert panel.form().blocked is None, "they were asked for"
    (shared,) = panel.form().rows[0].checks
    assert shared.level == "slows"
    assert "kim (pid 7)" in shared.text
    panel.choices = Choices(nodes={name: NodeChoice(is_used=True) for name in "ab"})
    assert "kim (pid 7)" in str(panel.form().blocked)
    panel.choices = msgspec.structs.replace(panel.choices, waits=True)
    form = panel.form()
    assert form.blocked is None
    assert panel.command(form).endswith("--queue")
    panel.launch(form, SILENT)
    assert [spec.world_size for spec in cluster.queued] == [2]
    assert cluster.launches == []


def busy(view: NodeView) -> NodeView:
    assert view.info is not None
    gpus = [
        msgspec.structs.replace(gpu, processes=(GpuProcess(pid=7, user="kim"),))
        for gpu in view.info.inventory.gpus
    ]
    inventory = msgspec.structs.replace(view.info.inventory, gpus=tuple(gpus))
    info = msgspec.structs.replace(view.info, inventory=inventory)
    return msgspec.structs.replace(view, info=info)


def test_a_recipe_that_does_not_fit_so_many_ranks_blocks(panel: Panel) -> None:
    form = choose(panel, microbatches=2, schedule="1f1b")
    assert form.blocked is not None
    assert form.blocked.kind is Kind.BAD_RECIPE
    assert form.blocked == form.settings[0].problem
    assert says("use 3 or more", form.blocked.fix)
    form = choose(panel, microbatches=None, changes="train.step=4")
    assert says("use steps", form.settings[0].text)
    form = choose(panel, changes="'open")
    assert says('"\'open": no closing quotation. Fix: close the quote.', form.settings[0].text)
    form = choose(panel, changes="", environment="NOVALUE")
    assert "NOVALUE" in form.settings[0].text


def test_a_port_is_looked_at_on_the_head_and_a_free_one_offered(
    panel: Panel, two: StandInCluster
) -> None:
    two.taken_ports = {29500}
    form = choose(panel, port="29500")
    assert form.blocked is None
    assert panel.look(form)
    assert two.looked_at == [("muthur", 29500, "eno1")]
    form = panel.form()
    assert form.blocked is not None
    assert (form.blocked.kind, form.blocked.node) == (Kind.PORT_TAKEN, "muthur")
    assert not panel.look(form)  # asked a moment ago
    assert len(two.looked_at) == 1
    fix = row(form, "muthur").checks[0].fix
    assert fix is not None
    assert fix.label == "Use 29501"
    panel.choices = fix.choices
    assert panel.look(panel.form())
    assert panel.form().blocked is None
    for text in ("0", "99999", "ssh", "-1"):
        assert repr(text) in words(choose(panel, port=text))
        panel.look(panel.form())
    assert len(two.looked_at) == 2


def test_nobody_there_and_nobody_chosen_say_what_to_do(here: Path, panel: Panel) -> None:
    nobody = open_panel(StandInCluster(), here, "small.toml").form()
    assert nobody.blocked is not None
    assert nobody.blocked.kind is Kind.NODE
    assert says("invite one with %mntrain invite", nobody.blocked.fix)
    form = choose(panel, others_take_part=False)
    assert form.blocked is not None
    assert form.blocked.kind is Kind.BAD_SPEC
    assert form.blocked.fix
