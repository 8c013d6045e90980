"""Averages over replicas: what is rounded to eight bits."""

from __future__ import annotations

import torch

from jupyter_mntrain.recipe.sections import BLOCK, SENT_BYTES
from jupyter_mntrain.train.optimizer.diloco import quantized, restored


def test_a_value_is_rounded_to_a_127th_of_the_largest_of_its_block() -> None:
    rows = torch.randn((3, 4 * BLOCK), generator=torch.Generator().manual_seed(1))
    rows[1, :BLOCK] *= 1e-6
    rows[2, BLOCK : 2 * BLOCK] = 0
    blocks = rows.view(3, 4, BLOCK)
    largest = blocks.abs().amax(dim=-1, keepdim=True)
    errors = (restored(quantized(rows)).view_as(blocks) - blocks).abs()
    assert (errors <= largest / 127 / 2 * 1.0001).all()
    assert errors.amax(dim=-1).gt(0).sum() == 11, "all but the block of zeros"


def test_the_largest_values_and_zeros_are_exact() -> None:
    rows = torch.zeros((1, BLOCK))
    rows[0, :2] = torch.tensor([127.0, -127.0])
    assert torch.equal(restored(quantized(rows)), rows)


def test_bytes_are_those_that_the_plan_counts() -> None:
    rows = torch.ones((2, 8 * BLOCK))
    assert quantized(rows).nbytes == rows.numel() * SENT_BYTES["int8"]


def test_what_is_not_finite_makes_its_block_nan_and_no_other() -> None:
    for wrong in (float("nan"), float("inf"), float("-inf")):
        rows = torch.ones((1, 2 * BLOCK))
        rows[0, 5] = wrong
        found = restored(quantized(rows))
        assert found[0, :BLOCK].isnan().all()
        assert torch.equal(found[0, BLOCK:], rows[0, BLOCK:])
