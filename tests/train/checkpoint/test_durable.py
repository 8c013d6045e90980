"""Durable copies: each checkpoint once more, in a directory that all nodes share."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.train.checkpoint.copies import durable
from tests.train.checkpoint.saved import Nodes, forget, run, saves
from tests.train.forked import train
from tests.wording import says

SLOWER = "train.batch_size=8"


def at_home(words: list[str]) -> None:
    """A rank whose node has a home directory of its own."""
    os.environ["HOME"] = f"{Path(words[0]).parent}/{os.environ['MNTRAIN_NODE']}"
    durable.SEEN_WITHIN_S = 0.5
    train(words)


@pytest.mark.slow
def test_a_run_outlives_the_disks_of_all_its_nodes(text: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    settings = (f"checkpoint.copy_to={shared}", "checkpoint.keep=2", SLOWER)
    nodes = Nodes(text, tmp_path, 2, *settings)
    whole = nodes.losses("whole", "ab")
    copies = CheckpointDirectory(shared)
    assert max(copies.manifests()) == 9, "the last one is waited for"
    assert len(copies.manifests()) <= 2, "no more than are kept"
    for step, manifest in copies.manifests().items():
        assert copies.shards(manifest) == (0, 1)
        for disk, rank in zip(nodes.disks, (0, 1), strict=True):
            own = CheckpointDirectory(disk).of(step) / shard_name(rank)
            assert own.read_bytes() == (copies.of(step) / shard_name(rank)).read_bytes()
    assert not list(shared.glob(".*")), "nothing unfinished, and no mark"

    forget(shared, 9)
    before = max(copies.manifests(), default=0)
    for disk in nodes.disks:
        shutil.rmtree(disk)
    assert nodes.losses("again", "ab") == whole[before:]


@pytest.mark.slow
def test_a_directory_that_nodes_do_not_share_is_refused(text: Path, tmp_path: Path) -> None:
    nodes = Nodes(text, tmp_path, 2, "checkpoint.copy_to=~/copies")
    ended = nodes.run("separate", "ab", program=at_home)
    assert [one.exit_code for one in ended] == [2, 2]
    assert says(
        "is not the directory that rank 0 has there. Fix: mount the same fold", ended[0].err
    )
    assert not list(tmp_path.glob("*/copies/.seen-*"))


@pytest.mark.slow
def test_what_cannot_be_copied_ends_nothing(
    text: Path, kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = tmp_path / "shared"
    (shared / ".step-00000009.attempt-1").parent.mkdir()
    (shared / ".step-00000009.attempt-1").write_text("in the way")
    run(text, kept, f"checkpoint.copy_to={shared}", "checkpoint.interval_steps=9")
    assert saves(kept) == ["step-00000009"]
    assert CheckpointDirectory(shared).manifests() == {}
    told = capsys.readouterr().out
    assert says("step 9 could not be copied", told)
    assert says("Training continues. Fix: check free space and permissions", told)
