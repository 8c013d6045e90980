"""Nodes that cannot run the job are marked before the launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from jupyter_mntrain.cluster import NodeView
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.node import GpuProcess
from jupyter_mntrain.verbs.panel.choices import NodeChoice
from tests.standin.cluster import StandInCluster, node
from tests.verbs.panel.opened import RECIPE, choose, kinds, open_panel, row


def with_versions(view: NodeView, **versions: Any) -> NodeView:
    assert view.info is not None
    other = msgspec.structs.replace(view.info.inventory.versions, **versions)
    inventory = msgspec.structs.replace(view.info.inventory, versions=other)
    return msgspec.structs.replace(
        view, info=msgspec.structs.replace(view.info, inventory=inventory)
    )


def with_cards(view: NodeView, **fields: Any) -> NodeView:
    assert view.info is not None
    cards = tuple(msgspec.structs.replace(gpu, **fields) for gpu in view.info.inventory.gpus)
    inventory = msgspec.structs.replace(view.info.inventory, gpus=cards)
    return msgspec.structs.replace(
        view, info=msgspec.structs.replace(view.info, inventory=inventory)
    )


def busy(view: NodeView) -> NodeView:
    return with_cards(view, processes=(GpuProcess(pid=7, user="ada"),))


def test_a_node_without_torch_is_an_error_even_where_none_has_it(here: Path) -> None:
    bare = [with_versions(node(name, n), torch=None) for n, name in enumerate("ab", 1)]
    form = open_panel(StandInCluster(bare), here, "small.toml").form()
    assert all(found for found in kinds(form).values())
    assert set(kinds(form)) == {"a", "b"}
    panel = open_panel(StandInCluster([bare[0], node("b", 2)]), here, "small.toml")
    blocked = panel.form().blocked
    assert blocked is not None
    assert blocked.node == "a"
    fix = row(panel.form(), "a").checks[0].fix
    assert fix is not None
    panel.choices = fix.choices
    assert (panel.form().blocked, panel.form().members) == (None, ("b",))


def test_another_processor_is_refused_until_it_is_acknowledged(here: Path) -> None:
    arm = with_versions(node("a", 1), platform="aarch64 linux")
    panel = open_panel(StandInCluster([arm, node("b", 2)]), here, "small.toml")
    blocked = panel.form().blocked
    assert blocked is not None
    assert blocked.kind is Kind.MIXED_VERSIONS
    assert choose(panel, mixed_versions=True).blocked is None


def test_a_node_left_out_because_its_gpus_are_taken_says_who_has_them(
    here: Path,
) -> None:
    nodes = [busy(node("a", 1, gpus=1)), node("b", 2, gpus=1)]
    panel = open_panel(StandInCluster(nodes), here, "small.toml")
    form = panel.form()
    assert (form.members, form.blocked) == (("b",), None)
    (check,) = row(form, "a").checks
    assert check.level == "slows"
    assert "ada" in check.text
    chosen = choose(panel, nodes={"a": NodeChoice(is_used=True)}, waits=True)
    assert (chosen.blocked, chosen.members) == (None, ("a", "b"))


def test_a_driver_older_than_torchs_cuda_blocks_at_its_row(here: Path) -> None:
    versions = {"torch": "2.13.0", "cuda": "13.0", "driver": "580.1", "driver_cuda": "13.0"}
    old = versions | {"driver": "570.1", "driver_cuda": "12.8"}
    nodes = [
        with_versions(node("a", 1, gpus=1), **old),
        with_versions(node("b", 2, gpus=1), **versions),
    ]
    panel = open_panel(StandInCluster(nodes), here, "small.toml")
    form = panel.form()
    assert Kind.OLD_DRIVER in kinds(form)["a"]
    assert form.blocked is not None
    assert (form.blocked.kind, form.blocked.node) == (Kind.OLD_DRIVER, "a")
    fix = next(check.fix for check in row(form, "a").checks if check.fix)
    panel.choices = fix.choices
    assert (panel.form().blocked, panel.form().members) == (None, ("b",))


def test_a_gpu_without_the_recipes_dtype_blocks_at_its_row(here: Path) -> None:
    old = with_cards(node("a", 1, gpus=1), compute_capability=(7, 5))
    (here / "small.toml").write_text(RECIPE.replace("[model]", '[model]\ndtype = "bfloat16"'))
    panel = open_panel(StandInCluster([old, node("b", 2, gpus=1)]), here, "small.toml")
    form = panel.form()
    assert kinds(form) == {"a": [Kind.BAD_RECIPE]}
    assert form.blocked is not None
    assert form.blocked.node == "a"
    assert choose(panel, nodes={"a": NodeChoice(is_used=False)}).blocked is None
