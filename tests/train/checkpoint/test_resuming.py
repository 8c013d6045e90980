"""Resuming on a different number of ranks: the same weights, optimizer state and losses.

They are equal to the last bit: every sum is over microbatches or, for the norm that clips, over
parameters, in an order that does not depend on the ranks.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from jupyter_mntrain.launch.checkpoints.directory import shard_name
from tests.train.checkpoint.saved import EVERY, STEPS, Nodes, forget
from tests.train.resumed import held_by, resume
from tests.train.test_command import write_text

pytestmark = pytest.mark.slow

LAST = STEPS - EVERY
CHANGES = ("pipeline.microbatches=4",)


def together(paths: Iterable[Path]) -> dict[str, torch.Tensor]:
    """The tensors of all files by name; none is in two of them."""
    found: dict[str, torch.Tensor] = {}
    for path in paths:
        tensors = load_file(path)
        assert not found.keys() & tensors.keys()
        found |= tensors
    return found


def assert_resumed(saved: Iterable[Path], metrics: Path, ranks: int) -> None:
    """All that was saved is held again, by one rank each."""
    before = {name: one for name, one in together(saved).items() if not name.startswith("random/")}
    now = together(metrics / held_by(rank) for rank in range(ranks))
    assert now.keys() == before.keys()
    kinds = {name.split("/")[1] for name in now if name.startswith("optimizer/")}
    assert kinds == {"exp_avg", "exp_avg_sq", "step"}
    assert not [name for name, one in now.items() if not torch.equal(one, before[name])]
    steps = {one.item() for name, one in now.items() if name.startswith("optimizer/step/")}
    assert steps == {LAST}


def test_three_ranks_go_on_with_the_weights_and_the_optimizer_of_two(
    tmp_path: Path,
) -> None:
    text = write_text(tmp_path / "text")
    nodes = Nodes(text, tmp_path, 3, *CHANGES)
    whole = nodes.losses("whole", "ab")
    for disk in nodes.disks[:2]:
        forget(disk, STEPS)
    # The third has a disk of its own, with nothing on it.
    again = nodes.losses("again", "abc", program=resume)
    saved = [disk / f"step-{LAST:08d}" / shard_name(n) for n, disk in enumerate(nodes.disks[:2])]
    assert_resumed(saved, tmp_path / "again", 3)
    assert again == whole[LAST:]


def test_one_rank_goes_on_with_the_weights_and_the_optimizer_of_three(tmp_path: Path) -> None:
    text, kept = write_text(tmp_path / "text"), tmp_path / "kept"
    nodes = Nodes(text, tmp_path, 3, *CHANGES, f"checkpoint.directory={kept}")
    whole = nodes.losses("whole", "abc")
    forget(kept, STEPS)
    again = nodes.losses("again", "a", program=resume)
    saved = [kept / f"step-{LAST:08d}" / shard_name(rank) for rank in range(3)]
    assert_resumed(saved, tmp_path / "again", 1)
    assert again == whole[LAST:]
