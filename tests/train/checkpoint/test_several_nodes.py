"""Checkpoints on several nodes: shards, copies, and the loss of a disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jupyter_mntrain.launch.checkpoints.directory import MANIFEST, CheckpointDirectory, shard_name
from jupyter_mntrain.train.checkpoint.neighbors import keepers_of
from tests.train.checkpoint.saved import STEPS, Nodes, forget
from tests.wording import says


@pytest.mark.slow
def test_a_node_may_be_lost_with_its_disk_where_its_neighbor_has_a_copy(
    text: Path, tmp_path: Path
) -> None:
    nodes = Nodes(text, tmp_path, 3, "checkpoint.copies=2", "pipeline.microbatches=4")
    whole = nodes.losses("whole", "abc")
    # A save that is due while the one before is still being copied is left out.
    last = max(step for step in CheckpointDirectory(nodes.disks[0]).manifests() if step < STEPS)
    for disk, shards in zip(nodes.disks, ((0, 2), (0, 1), (1, 2)), strict=True):
        names = sorted(path.name for path in CheckpointDirectory(disk).of(last).iterdir())
        assert names == [MANIFEST, *map(shard_name, shards)]
        forget(disk, STEPS)
    shutil.rmtree(nodes.disks[1])
    assert nodes.losses("rest", "ac") == whole[last:]


@pytest.mark.slow
def test_what_is_left_of_a_checkpoint_is_not_thrown_away(text: Path, tmp_path: Path) -> None:
    nodes = Nodes(text, tmp_path, 2)
    nodes.losses("whole", "ab")
    (alone,) = nodes.run("alone", "a")
    assert alone.exit_code == 2
    words = "checkpoint 9 is incomplete: no node has the shards of rank 1 (saved on b)"
    assert says(words, alone.err)
    assert says("resume it with all nodes that saved it", alone.err)
    assert sorted(CheckpointDirectory(nodes.disks[0]).manifests()) == [3, 6, 9]


@pytest.mark.slow
def test_a_checkpoint_that_one_node_had_not_published_yet_is_whole(
    text: Path, tmp_path: Path
) -> None:
    nodes = Nodes(text, tmp_path, 2)
    whole = nodes.losses("whole", "ab")
    second = CheckpointDirectory(nodes.disks[1])
    for disk in nodes.disks:
        forget(disk, 6, 9)
    (second.of(3) / MANIFEST).unlink()
    second.of(3).rename(second.path / ".step-00000003.attempt-1")
    assert nodes.losses("again", "ab") == whole[3:]


def test_a_copy_is_kept_on_another_node() -> None:
    assert keepers_of(["a"]) == [None]
    assert keepers_of(["a", "a"]) == [None, None]
    assert keepers_of(["a", "b"]) == [1, 0]
    assert keepers_of(["a", "a", "b"]) == [2, 2, 0]
    assert keepers_of(["a", "b", "c", "c", "b"]) == [1, 2, 0, 0, 3]


@pytest.mark.slow
def test_two_nodes_with_disks_of_their_own_then_one_then_two(text: Path, tmp_path: Path) -> None:
    nodes = Nodes(text, tmp_path, 2, "train.skip_spikes=3")
    disks = nodes.disks

    def ranks(name: str, count: int) -> list[float]:
        return nodes.losses(name, "ab"[:count])

    whole = ranks("whole", 2)
    assert [sorted(path.name for path in (disk / "step-00000006").iterdir()) for disk in disks] == [
        [MANIFEST, shard_name(0)],
        [MANIFEST, shard_name(1)],
    ]
    # One node did not get as far as the other: what both have counts.
    forget(disks[1], 6, 9)
    assert ranks("again", 2) == whole[3:]

    # One rank goes on with what two saved, where it can read both shards.
    for disk in disks:
        forget(disk, 9)
    shutil.copy(disks[1] / "step-00000006" / shard_name(1), disks[0] / "step-00000006")
    assert ranks("one", 1) == whole[6:]

    # Two go on with what one saved: the second gets its tensors from the first.
    shutil.rmtree(disks[1])
    forget(disks[0], 3, 6, 9)
    alone = ranks("alone", 1)
    forget(disks[0], 9)
    assert ranks("both", 2) == alone[6:]


@pytest.mark.slow
def test_the_state_of_some_rows_goes_on_with_others(text: Path, tmp_path: Path) -> None:
    more = ("optimizer.kind=adafactor", "optimizer.learning_rate=0.1", "train.batch_size=12")
    two, three = (
        Nodes(text, tmp_path, 3, *more, f"data_parallel.shards={count}") for count in (2, 3)
    )
    whole = two.losses("two", "ab")
    for disk in two.disks[:2]:
        forget(disk, 6, 9)
    assert three.losses("three", "abc") == pytest.approx(whole[3:], rel=1e-5)
