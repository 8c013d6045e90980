"""Choosing a checkpoint: the newest complete one, and interruptions of publishing."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.launch.checkpoints.directory import (
    MANIFEST,
    CheckpointDirectory,
    shard_name,
)
from jupyter_mntrain.model.records.checkpoint import Manifest, best_first
from jupyter_mntrain.train.checkpoint.resuming import Held, choose


def manifest(step: int, world_size: int = 2, attempt: int = 1) -> Manifest:
    return Manifest(step=step, attempt=attempt, shard_bytes=(10,) * world_size)


def test_the_newest_that_is_whole_is_chosen() -> None:
    old, new = manifest(3), manifest(6)
    assert choose([[], []]) is None
    assert choose([[Held(old, (0,)), Held(new, (0,))], [Held(old, (1,))]]) is not None
    found = choose([[Held(old, (0,)), Held(new, (0,))], [Held(old, (1,))]])
    assert found is not None
    assert (found.manifest, found.readers) == (old, (0, 1))


def test_what_a_node_that_was_away_brings_back_is_not_the_newest() -> None:
    """The run went on from 400 without it: its step 600 is of the past."""
    left_behind, newest = manifest(600, attempt=1), manifest(450, attempt=2)
    found = choose([[Held(newest, (0, 1))], [Held(left_behind, (0, 1))]])
    assert found is not None
    assert found.manifest == newest


def test_a_pinned_one_is_not_pruned_and_does_not_count(tmp_path: Path) -> None:
    directory = CheckpointDirectory(tmp_path)
    for step in (3, 6, 9, 12):
        (directory.begin(step) / shard_name(0)).write_bytes(b"x" * 10)
        directory.publish(manifest(step, world_size=1))
        if step == 3:
            directory.pin(3, is_pinned=True)
        directory.prune(2)
    assert sorted(directory.manifests()) == [3, 9, 12]
    assert [(one.manifest.step, one.is_pinned) for one in directory.held()] == [
        (3, True),
        (9, False),
        (12, False),
    ]
    directory.pin(3, is_pinned=False)
    directory.prune(2)
    assert sorted(directory.manifests()) == [9, 12]


def test_one_that_is_being_read_is_not_pruned(tmp_path: Path) -> None:
    directory = CheckpointDirectory(tmp_path)
    for step in (3, 6, 9):
        (directory.begin(step) / shard_name(0)).write_bytes(b"x" * 10)
        directory.publish(manifest(step, world_size=1))
    directory.prune(1, used=3)
    assert sorted(directory.manifests()) == [3, 9]
    directory.prune(1)
    assert sorted(directory.manifests()) == [9]


def test_the_best_are_not_pruned_and_the_newest_stay_beside_them(tmp_path: Path) -> None:
    directory = CheckpointDirectory(tmp_path)
    losses = {3: 2.0, 6: 1.5, 9: 1.9, 12: None, 15: 1.5, 18: 2.5, 21: 2.4}
    for step, loss in losses.items():
        (directory.begin(step) / shard_name(0)).write_bytes(b"x" * 10)
        made = manifest(step, world_size=1)
        directory.publish(msgspec.structs.replace(made, evaluation_loss=loss))
        directory.prune(2, 2)
    assert sorted(directory.manifests()) == [6, 15, 18, 21], "of equal ones the older is better"
    assert [one.step for one in best_first(directory.manifests().values())] == [6, 15, 21, 18]
    directory.prune(2)
    assert sorted(directory.manifests()) == [18, 21]


def test_each_rank_reads_its_own_shard_where_it_can() -> None:
    shared = [Held(manifest(3), (0, 1))]
    found = choose([shared, shared])
    assert found is not None
    assert found.readers == (0, 1)


def test_halves_of_two_saves_of_one_step_are_no_whole() -> None:
    first, second = manifest(6, attempt=1), manifest(6, attempt=2)
    assert choose([[Held(first, (0,))], [Held(second, (1,))]]) is None


@pytest.mark.slow
def test_any_interruption_leaves_the_one_before(tmp_path: Path) -> None:
    """Every prefix of what a save does to the disk, on either of two nodes."""
    chance = random.Random(4)
    for _ in range(200):
        shutil.rmtree(tmp_path / "at", ignore_errors=True)
        nodes = [CheckpointDirectory(tmp_path / "at" / name) for name in "ab"]
        publish(nodes, manifest(3), [9, 9])
        publish(nodes, manifest(6), [chance.randrange(5), chance.randrange(5)])
        whole = any((node.of(6) / MANIFEST).exists() for node in nodes)
        for known in [one for node in nodes for one in node.manifests().values()]:
            for node in nodes:
                node.adopt(known)
        held = [
            [Held(one, node.shards(one)) for one in node.manifests().values()] for node in nodes
        ]
        found = choose(held)
        assert found is not None
        assert found.manifest.step == (6 if whole else 3)


def publish(nodes: list[CheckpointDirectory], one: Manifest, acts: list[int]) -> None:
    """What each node does of a save until it is cut off; all write before any publishes."""
    for rank, node in enumerate(nodes):
        if acts[rank] >= 1:
            folder = node.begin(one.step)
            written = 10 if acts[rank] >= 2 else 4
            (folder / shard_name(rank)).write_bytes(b"x" * written)
    if all(done >= 2 for done in acts):
        for node, done in zip(nodes, acts, strict=True):
            if done == 3:
                unfinished = node.begin(one.step)
                (unfinished / MANIFEST).write_bytes(msgspec.json.encode(one))
            elif done >= 4:
                node.publish(one)


def test_nodes_that_share_a_directory_publish_it_together(tmp_path: Path) -> None:
    for attempt in (1, 2):
        nodes = [CheckpointDirectory(tmp_path, attempt) for _ in range(2)]
        one = manifest(6, attempt=attempt)
        for rank, node in enumerate(nodes):
            (node.begin(6) / shard_name(rank)).write_bytes(b"0123456789")
        for node in nodes:
            node.publish(one)
        assert nodes[0].manifests() == {6: one}
        assert nodes[0].shards(one) == (0, 1)
        assert [path.name for path in tmp_path.iterdir()] == ["step-00000006"]
