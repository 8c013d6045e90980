"""Checkpoint directory: two nodes publish into one that both see."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.model.records.checkpoint import Manifest

RANKS = 16
ROUNDS = 30


@pytest.mark.parametrize("was_saved_before", [False, True])
def test_nodes_that_publish_at_once_lose_no_shard(tmp_path: Path, was_saved_before: bool) -> None:
    """As after a resume from an older step, too: the step is saved again, and merged."""
    barrier = threading.Barrier(2)
    errors: list[Exception] = []

    def publish(directory: CheckpointDirectory, manifest: Manifest) -> None:
        barrier.wait()
        try:
            directory.publish(manifest)
        except OSError as error:
            errors.append(error)

    for number in range(ROUNDS):
        nodes = [CheckpointDirectory(tmp_path / str(number), 2) for _ in range(2)]
        if was_saved_before:
            older = CheckpointDirectory(nodes[0].path, 1)
            save(older, Manifest(5, 1, (3,) * RANKS), b"old")
            older.publish(Manifest(5, 1, (3,) * RANKS))
        manifest = Manifest(5, 2, (5,) * RANKS)
        save(nodes[0], manifest, b"newer")
        threads = [threading.Thread(target=publish, args=(one, manifest)) for one in nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert nodes[0].manifests() == {5: manifest}
        assert nodes[0].shards(manifest) == tuple(range(RANKS))
        assert not nodes[0].unfinished()


def save(directory: CheckpointDirectory, manifest: Manifest, content: bytes) -> None:
    folder = directory.begin(manifest.step)
    for rank in range(manifest.world_size):
        (folder / shard_name(rank)).write_bytes(content)
