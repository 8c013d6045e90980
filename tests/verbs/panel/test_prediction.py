"""Predicted bubble and link load."""

from __future__ import annotations

import pytest

from jupyter_mntrain.notebook.panel.html import predicted
from jupyter_mntrain.plan.traffic import ring_traffic, step_traffic
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.panel.panel import Panel
from tests.standin.pipeline import GIGABIT
from tests.verbs.panel.opened import choose


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


@pytest.mark.parametrize("schedule", ["zbv", "interleaved-zero-bubble"])
def test_slots_that_weight_gradients_fill_are_not_called_empty(panel: Panel, schedule: str) -> None:
    prediction = choose(panel, schedule=schedule, changes="pipeline.stages_per_rank=2").prediction
    assert prediction is not None
    assert prediction.empty is None
    shown = predicted(prediction, now_s=0.0)
    assert formats.percent(prediction.bubble) in shown
    assert "mnt-slots" not in shown


def test_interleaved_stages_cross_again_and_wrap_around() -> None:
    assert step_traffic(["a", "a", "b"], 1, 10.0) == {("a", "b"): 10.0, ("b", "a"): 10.0}
    assert step_traffic(["a", "b"], 2, 10.0) == {("a", "b"): 30.0, ("b", "a"): 30.0}
    assert step_traffic(["a", "a"], 2, 10.0) == {}


def test_replicas_on_different_nodes_send_their_gradients_round() -> None:
    assert ring_traffic(["a", "a"], 10.0) == {}
    assert ring_traffic(["a", "b"], 10.0) == {("a", "b"): 10.0, ("b", "a"): 10.0}
    assert ring_traffic(["a", "a", "b"], 30.0) == {("a", "b"): 40.0, ("b", "a"): 40.0}


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
