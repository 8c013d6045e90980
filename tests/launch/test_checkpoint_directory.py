"""Checkpoint directory: two nodes publish into one that both see."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.launch.checkpoints.directory import (
    MANIFEST,
    CheckpointDirectory,
    shard_name,
)
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


def test_a_manifest_that_is_not_what_was_written_is_none(tmp_path: Path) -> None:
    directory = CheckpointDirectory(tmp_path)
    figures = {"digests": {"model": "ab"}, "evaluation_loss": 1.5}
    manifest = Manifest(5, 1, (3, 3), checksums=("c", "d"), **figures)
    save(directory, manifest, b"new")
    directory.publish(manifest)
    assert directory.manifests() == {5: manifest}
    file = directory.of(5) / MANIFEST
    whole = file.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            file.write_bytes(damaged)
            assert not directory.manifests()
            assert directory.unreadable()
    for name in json.loads(whole):
        # By a library that spaces it in another way.
        changed = json.loads(whole)
        del changed[name]
        file.write_text(json.dumps(changed))
        assert not directory.manifests()
    older = Manifest(5, 1, (3, 3), **figures)
    file.write_bytes(msgspec.json.encode(older))
    assert directory.manifests() == {5: older}


def save(directory: CheckpointDirectory, manifest: Manifest, content: bytes) -> None:
    folder = directory.begin(manifest.step)
    for rank in range(manifest.world_size):
        (folder / shard_name(rank)).write_bytes(content)


def test_what_is_put_aside_stays_though_another_node_or_an_earlier_resume_did_so(
    tmp_path: Path,
) -> None:
    for attempt, content in ((1, b"old"), (2, b"new")):
        nodes = [CheckpointDirectory(tmp_path, attempt) for _ in range(2)]
        manifest = Manifest(5, attempt, (3,))
        save(nodes[0], manifest, content)
        nodes[0].publish(manifest)
        (aside, wrong), *others = [found for one in nodes for found in one.clean(0).values()]
        assert (others, wrong) == ([], "")
        assert nodes[1]._put_aside(5) is None  # it has looked before the first one did so
        assert (aside / shard_name(0)).read_bytes() == content
    kept = {path.name: (path / shard_name(0)).read_bytes() for path in tmp_path.iterdir()}
    assert kept == {"damaged-step-00000005": b"old", "damaged-step-00000005.1": b"new"}
