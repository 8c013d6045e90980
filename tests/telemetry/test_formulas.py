from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.telemetry import ModelShape, formulas

LLAMA_3_8B = ModelShape(
    layers=32,
    hidden_size=4096,
    intermediate_size=14336,
    heads=32,
    key_value_heads=8,
    head_dim=128,
    vocabulary_size=128256,
)


def test_llama_3_8b_agrees_with_the_published_arithmetic() -> None:
    layer = formulas.layer_flops_per_token(LLAMA_3_8B, 4096)
    assert layer == pytest.approx(1.31e9 + 0.20e9, rel=0.01)
    assert formulas.head_flops_per_token(LLAMA_3_8B) == pytest.approx(3.15e9, rel=0.01)


def test_a_whole_model_is_palms_formula() -> None:
    shape, length = LLAMA_3_8B, 2048
    per_layer = 2 * 4096 * 4096 + 2 * 4096 * 8 * 128 + 3 * 4096 * 14336
    parameters = 32 * per_layer + 4096 * 128256
    palm = 6 * parameters + 12 * 32 * 32 * 128 * length
    ours = formulas.stage_flops_per_token(shape, length, layers=32, has_head=True)
    assert ours == palm


@given(cut=st.integers(0, 32), length=st.integers(1, 8192))
def test_stages_add_up_to_the_model(cut: int, length: int) -> None:
    first = formulas.stage_flops_per_token(LLAMA_3_8B, length, layers=cut, has_head=False)
    last = formulas.stage_flops_per_token(LLAMA_3_8B, length, layers=32 - cut, has_head=True)
    whole = formulas.stage_flops_per_token(LLAMA_3_8B, length, layers=32, has_head=True)
    assert first + last == pytest.approx(whole)


def test_mfu_needs_everything() -> None:
    assert formulas.mfu(50.0, 100.0) == 0.5
    assert formulas.mfu(None, 100.0) is None
    assert formulas.mfu(50.0, None) is None
    assert formulas.mfu(50.0, 0.0) is None


@given(stages=st.integers(1, 64), microbatches=st.integers(1, 512), virtual=st.integers(1, 8))
def test_bubble_shrinks_with_more_microbatches_and_virtual_stages(
    stages: int, microbatches: int, virtual: int
) -> None:
    bubble = formulas.ideal_bubble(stages, microbatches, virtual)
    assert 0 <= bubble < 1
    assert formulas.ideal_bubble(stages, microbatches + 1, virtual) <= bubble
    assert formulas.ideal_bubble(stages, microbatches, virtual + 1) <= bubble


def test_known_bubbles() -> None:
    assert formulas.ideal_bubble(1, 8) == 0
    assert formulas.ideal_bubble(2, 8) == pytest.approx(1 / 9)
    assert formulas.ideal_bubble(2, 8, 2) == pytest.approx(1 / 17)
    assert formulas.measured_bubble(0.75, 1.0) == 0.25
    assert formulas.measured_bubble(1.1, 1.0) == 0  # clocks are read one after the other
    assert formulas.measured_bubble(1.0, 0.0) is None


def test_rates() -> None:
    assert formulas.throughput(100, 4.0) == 25
    assert formulas.throughput(100, 0.0) is None
    assert formulas.link_utilization(30.0, 120.0) == 0.25
    assert formulas.link_utilization(30.0, None) is None


def test_shares_of_a_step_add_up_and_each_takes_what_is_left() -> None:
    shares = formulas.step_shares(
        10.0, 6.0, optimizer_s=1.0, transfer_s=0.5, bubble=formulas.ideal_bubble(2, 3)
    )
    assert shares is not None
    assert (shares.compute, shares.send, shares.schedule_bubble) == (0.7, 0.05, 0.2)
    assert shares.wait == pytest.approx(0.05)
    full = formulas.step_shares(10.0, 9.0, transfer_s=50.0, bubble=0.5)
    assert full is not None
    assert (full.compute, full.schedule_bubble, full.wait) == (0.9, 0.0, 0.0)
    assert full.send == pytest.approx(0.1)
    early = formulas.step_shares(10.0, 6.0, transfer_s=0.5, bubble=None)
    assert early is not None
    assert (early.compute, early.send, early.schedule_bubble, early.wait) == (0.6, 0.05, None, None)


def test_encoding_is_neither_computing_nor_waiting() -> None:
    parts = {"optimizer_s": 1.0, "transfer_s": 0.5, "bubble": formulas.ideal_bubble(2, 3)}
    shares = formulas.step_shares(10.0, 6.0, coding_s=0.2, **parts)
    assert shares is not None
    assert (shares.compute, shares.coding, shares.send) == (0.7, 0.02, 0.05)
    assert (shares.schedule_bubble, shares.wait) == (0.2, pytest.approx(0.03))
    full = formulas.step_shares(10.0, 9.0, coding_s=5.0, **parts)
    assert full is not None
    assert (full.compute, full.coding, full.send, full.wait) == (1.0, 0.0, 0.0, 0.0)


def test_shares_of_a_step_that_took_no_time_are_not_known() -> None:
    assert formulas.step_shares(0.0, 0.0) is None
