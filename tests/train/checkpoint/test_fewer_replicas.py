"""Replicas that sync rarely, one of which is lost: the others go on, and it may come back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.train.checkpoint.saving import Checkpointing
from tests.train.checkpoint.saved import Nodes, forget
from tests.train.forked import train
from tests.wording import says

SAVED = 4
"""Between the syncs after steps 3 and 6. The first save of an attempt is never left out."""
SETTINGS = (
    *("data_parallel.replicas=3", "data_parallel.sync_every=3", "train.batch_size=12"),
    *("checkpoint.interval_steps=4", "checkpoint.copies=2"),
)


def noting(words: list[str]) -> None:
    """A rank that writes the weights which it goes on with."""
    original = Checkpointing.resume

    def resume(self: Checkpointing, *given: Any) -> int:
        step = original(self, *given)
        weights = {name: one.detach() for name, one in self.model.parameters().items()}
        save_file(weights, Path(words[0]).parent / f"resumed-{self.world.rank}.safetensors")
        return step

    Checkpointing.resume = resume  # type: ignore[method-assign]
    train(words)


def later(disk: Path, step: int) -> list[int]:
    """Steps of the checkpoints that came after this one."""
    return [one for one in CheckpointDirectory(disk).manifests() if one > step]


def saved_by(disks: list[Path], step: int, replica: int) -> dict[str, torch.Tensor]:
    prefix, found = f"replica-{replica}/model/", {}
    for disk in disks:
        for shard in CheckpointDirectory(disk).of(step).glob("*.safetensors"):
            tensors = load_file(shard).items()
            found |= {name.removeprefix(prefix): one for name, one in tensors if prefix in name}
    return found


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_a_lost_replica_ends_nobody_else_and_may_come_back(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(text, tmp_path, 3, *SETTINGS)
    nodes.losses("three", "abc")
    for disk in nodes.disks:
        forget(disk, *later(disk, SAVED))
    own = [saved_by(nodes.disks, SAVED, replica) for replica in range(3)]
    assert not same(own[0], own[1]), "they are apart"
    shutil.rmtree(nodes.disks[2])

    monkeypatch.setenv("MNTRAIN_WHOLE_WORLD_SIZE", "3")
    left = nodes.run("two", "ab", program=noting)
    assert [one.exit_code for one in left] == [0, 0], left
    assert says("2 of 3 ranks are left, so 2 of 3 replicas continue, with 1 rank each", left[0].out)
    for rank in (0, 1):
        assert same(load_file(tmp_path / f"resumed-{rank}.safetensors"), own[rank])

    for disk in nodes.disks[:2]:
        forget(disk, *later(disk, 8))
    now = [saved_by(nodes.disks[:2], 8, replica) for replica in range(2)]
    monkeypatch.delenv("MNTRAIN_WHOLE_WORLD_SIZE")
    again = nodes.run("back", "abc", program=noting)
    assert [one.exit_code for one in again] == [0, 0, 0], again
    for rank, replica in enumerate((0, 1, 0)):
        assert same(load_file(tmp_path / f"resumed-{rank}.safetensors"), now[replica])


@pytest.mark.slow
def test_the_last_replica_goes_on_alone_until_another_comes(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(text, tmp_path, 2, *SETTINGS, "data_parallel.replicas=2")
    nodes.losses("two", "ab")
    for disk in nodes.disks:
        forget(disk, *later(disk, SAVED))
    own = saved_by(nodes.disks, SAVED, 0)
    shutil.rmtree(nodes.disks[1])
    monkeypatch.setenv("MNTRAIN_WHOLE_WORLD_SIZE", "2")
    (alone,) = nodes.run("alone", "a", program=noting)
    assert alone.exit_code == 0, alone
    assert says("so 1 of 2 replicas continue, with 1 rank each, without syncs", alone.out)
    assert same(load_file(tmp_path / "resumed-0.safetensors"), own)

    forget(nodes.disks[0], *later(nodes.disks[0], 8))
    monkeypatch.delenv("MNTRAIN_WHOLE_WORLD_SIZE")
    both = nodes.run("both", "ab", program=noting)
    assert [one.exit_code for one in both] == [0, 0], both
    resumed = [load_file(tmp_path / f"resumed-{rank}.safetensors") for rank in (0, 1)]
    assert same(*resumed), "those of the one that was alone"
