"""Predicted bubble and link load."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.notebook.panel.html import predicted
from jupyter_mntrain.plan.prediction.step import ring_traffic
from jupyter_mntrain.recipe.transfers import wire_bytes
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.panel.panel import Panel
from tests.standin.cluster import StandInCluster, node
from tests.standin.pipeline import GIGABIT
from tests.verbs.panel.opened import choose, kinds, open_panel


def test_the_bubble_and_the_bytes_on_each_link_are_known_before_the_start(panel: Panel) -> None:
    prediction = panel.form().prediction
    assert prediction is not None
    assert (prediction.ranks, prediction.slots, prediction.empty) == (3, 8, 2)
    assert prediction.bubble == pytest.approx(2 / 8)
    assert prediction.links is not None
    forward, back = prediction.links
    assert (forward.sender, forward.receiver) == ("muthur", "wopr")
    assert (back.sender, back.receiver) == ("wopr", "muthur")
    # One boundary crosses nodes: 12 sequences of 256 tokens, 64 wide, 4 bytes each.
    assert forward.bytes_per_step == 12 * 256 * 64 * 4
    assert forward.seconds == pytest.approx(forward.bytes_per_step / GIGABIT.bytes_per_s)


def test_of_compressed_messages_the_bytes_that_are_sent_count(panel: Panel) -> None:
    prediction = choose(panel, changes="pipeline.transfer=int8-int4").prediction
    assert prediction is not None
    assert prediction.links is not None
    forward, back = prediction.links
    assert (forward.sender, back.sender) == ("muthur", "wopr")
    assert forward.bytes_per_step == 12 * 256 * (64 + 2)
    # In 4 bits a message has more than its tokens: 6 microbatches of 2 sequences.
    assert back.bytes_per_step == 6 * wire_bytes("int4", 2 * 256, 64, 4)


@pytest.mark.parametrize("schedule", ["zbv", "interleaved-zero-bubble"])
def test_slots_that_weight_gradients_fill_are_not_called_empty(panel: Panel, schedule: str) -> None:
    prediction = choose(panel, schedule=schedule, changes="pipeline.stages_per_rank=2").prediction
    assert prediction is not None
    assert prediction.empty is None
    shown = predicted(prediction, now_s=0.0)
    assert formats.percent(prediction.bubble) in shown
    assert "mnt-slots" not in shown


def test_replicas_on_different_nodes_send_their_gradients_round() -> None:
    assert ring_traffic(["a", "a"], 10.0) == {}
    assert ring_traffic(["a", "b"], 10.0) == {("a", "b"): 10.0, ("b", "a"): 10.0}
    assert ring_traffic(["a", "a", "b"], 30.0) == {("a", "b"): 40.0, ("b", "a"): 40.0}


def test_shards_on_different_nodes_send_weights_and_gradients_once(panel: Panel) -> None:
    twice = choose(panel, changes="data_parallel.replicas=3").prediction
    once = choose(panel, changes="data_parallel.shards=3").prediction
    assert twice is not None
    assert once is not None
    # Weights gathered and gradients scattered: as much as an all-reduce of the gradients.
    assert once.links == twice.links != ()


def test_pipelines_side_by_side_send_their_share_each(panel: Panel) -> None:
    changes = "data_parallel.replicas=3\nmodel.tie_embeddings=true"
    prediction = choose(panel, changes=changes).prediction
    assert prediction is not None
    assert (prediction.ranks, prediction.bubble) == (1, 0)
    assert prediction.links is not None
    there, back = prediction.links
    # No activations, but the gradients of the whole model: four layers of 64 x 64 twice, 64 x 32
    # twice and 64 x 176 thrice, two norms each and one at the end, and a vocabulary of 2048.
    weights = 4 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 176) + 9 * 64 + 2048 * 64
    assert there.bytes_per_step == back.bytes_per_step == pytest.approx(weights * 4 * 2 * 2 / 3)


def test_step_time_and_memory_of_each_rank_are_in_sight(here: Path) -> None:
    cluster = StandInCluster([node("muthur", 2, gpus=1), node("wopr", 1, gpus=2)])
    panel = open_panel(cluster, here, "small.toml")
    prediction = panel.form().prediction
    assert prediction is not None
    assert prediction.unknown is None
    assert prediction.step is not None
    assert prediction.memory is not None
    assert [(one.rank, one.node) for one in prediction.memory] == [
        (0, "muthur"), (1, "wopr"), (2, "wopr"),
    ]  # fmt: skip
    assert {one.gpu_bytes for one in prediction.memory} == {24 << 30}
    assert panel.look(panel.form())
    planned = panel.form().prediction
    assert planned is not None
    built = panel._built(panel.form())
    assert [one.estimate for one in planned.memory or ()] == [
        one.estimate for one in built.memory(built.expected()) or ()
    ]
    # The link takes longer than the little model.
    assert prediction.links is not None
    assert prediction.step.seconds == pytest.approx(prediction.links[0].seconds)
    assert prediction.step.rank is None
    shown = predicted(prediction, now_s=0.0)
    assert formats.seconds(prediction.step.seconds) in shown
    assert shown.count("mnt-meter") == 3


@pytest.mark.parametrize(
    ("changes", "gpus", "why"),
    [
        ("", 0, ("no-gpu", "wopr")),
        ("train.device=cpu", 1, ("no-gpu", "wopr")),
        ("model.path=/nowhere/model", 1, ("model", "/nowhere/model")),
    ],
)
def test_what_is_unknown_is_absent_with_its_reason(
    here: Path, changes: str, gpus: int, why: tuple[str, str]
) -> None:
    (here / "small.toml").write_text("[pipeline]\nmicrobatches = 4\n")
    panel = open_panel(StandInCluster([node("wopr", 1, gpus=gpus)]), here, "small.toml")
    prediction = choose(panel, changes=changes).prediction
    assert prediction is not None
    assert (prediction.step, prediction.unknown) == (None, why)
    shown = predicted(prediction, now_s=0.0)
    assert f"<b>{formats.ABSENT}</b>" in shown
    assert why[1] in shown


def test_a_gpu_that_no_table_knows_has_no_step_time(here: Path) -> None:
    view = node("wopr", 1, gpus=1)
    assert view.info is not None
    other = msgspec.structs.replace(view.info.inventory.gpus[0], name="Unobtainium <1>")
    inventory = msgspec.structs.replace(view.info.inventory, gpus=(other,))
    info = msgspec.structs.replace(view.info, inventory=inventory)
    cluster = StandInCluster([msgspec.structs.replace(view, info=info)])
    prediction = open_panel(cluster, here, "small.toml").form().prediction
    assert prediction is not None
    assert prediction.unknown == ("peak", "Unobtainium <1>")
    assert "Unobtainium &lt;1&gt;" in predicted(prediction, now_s=0.0)


def test_a_rank_that_will_not_fit_is_a_warning_at_its_node(here: Path) -> None:
    (here / "small.toml").write_text('[model]\npreset = "llama-1b"\n')
    panel = open_panel(StandInCluster([node("wopr", 1, gpus=1)]), here, "small.toml")
    form = choose(panel, changes="model.layers=64")
    assert kinds(form) == {"wopr": [Kind.TIGHT_MEMORY]}
    assert form.blocked is None
    assert "mnt-over" in predicted(form.prediction, now_s=0.0)


def test_a_step_is_planned_once_the_panel_is_shown_and_again_when_choices_change(
    panel: Panel,
) -> None:
    form = panel.form()
    assert form.prediction is not None
    assert form.prediction.plan is None
    assert panel.look(form)
    first = panel.form().prediction
    assert first is not None
    assert first.plan is not None
    assert formats.seconds(first.plan.plan.step_s) in predicted(first, now_s=0.0)
    assert first.plan.plan.bottleneck in predicted(first, now_s=0.0)
    assert not panel.look(panel.form()), "the same choices are not planned again"
    changed = choose(panel, changes="model.layers=12")
    assert changed.prediction is not None
    assert changed.prediction.plan is None, "an old plan is not shown for other choices"
    assert panel.look(changed)
    other = panel.form().prediction
    assert other is not None
    assert other.plan is not None
    assert other.plan.plan.step_s > first.plan.plan.step_s


def test_what_cannot_be_planned_is_not_asked_again(here: Path) -> None:
    (here / "small.toml").write_text('[model]\npath = "/nowhere/model"\n')
    panel = open_panel(StandInCluster([node("wopr", 1, gpus=1)]), here, "small.toml")
    form = panel.form()
    assert not panel.look(form)
    assert form.prediction is not None
    assert form.prediction.plan is None
