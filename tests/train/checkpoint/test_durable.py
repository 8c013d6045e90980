"""Durable copies: each checkpoint once more, in a directory that all nodes share."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.checkpoint import Manifest
from jupyter_mntrain.recipe.sections import CheckpointSection
from jupyter_mntrain.telemetry.progress import unwatched
from jupyter_mntrain.train.checkpoint import durable
from jupyter_mntrain.train.checkpoint.durable import DurableCopies, copy_proved
from jupyter_mntrain.train.world import World, join_world
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

    (shared / ".step-00000006.attempt-7").mkdir()
    forget(shared, 9)
    before = max(copies.manifests(), default=0)
    for disk in nodes.disks:
        shutil.rmtree(disk)
    assert nodes.losses("again", "ab") == whole[before:]
    assert not list(shared.glob(".*")), "nothing that an earlier attempt left"


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


def test_what_an_attempt_could_not_copy_is_copied_by_the_next(text: Path, tmp_path: Path) -> None:
    kept, shared = tmp_path / "kept", tmp_path / "shared"
    first = run(text, kept)
    forget(kept, 9)
    again = run(text, kept, f"checkpoint.copy_to={shared}", "checkpoint.interval_steps=0")
    assert again.losses == first.losses[6:]
    assert {6, 9} <= CheckpointDirectory(shared).manifests().keys()


class Slow:
    """Copies of one rank, each of which lasts until the test ends it."""

    def __init__(self, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ends = threading.Event()
        source = CheckpointDirectory(tmp_path / "own")
        self.told: list[str] = []
        self.copies = DurableCopies(
            world, source, CheckpointDirectory(tmp_path / "copies"), self.told.append
        )
        self.manifest = Manifest(3, 1, (10,))
        (source.begin(3) / shard_name(0)).write_bytes(b"x" * 10)
        source.publish(self.manifest)

        def waits(*arguments: Any) -> None:
            assert self.ends.wait(60)
            copy_proved(*arguments)

        monkeypatch.setattr(durable, "copy_proved", waits)


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    with join_world("cpu", 60) as world:
        made = Slow(world, tmp_path, monkeypatch)
        yield made
        made.ends.set()


def test_votes_that_were_cast_before_a_copy_began_do_not_end_it(slow: Slow) -> None:
    """On a GPU a step's votes are read once the next step is queued."""
    copies = slow.copies
    late = [copies.vote()]
    copies.begin(slow.manifest, CheckpointSection())
    for _ in range(3):
        late.append(copies.vote())
        copies.count(late.pop(0))
        assert not copies.is_over
    slow.ends.set()
    while copies.is_copying:
        pass
    late.append(copies.vote())
    copies.count(late.pop(0))
    assert not copies.is_over, "that vote was cast while it was copying"
    copies.count(late.pop(0))
    assert copies.is_over
    copies.finish()
    assert copies.target.manifests().keys() == {3}


def test_a_run_that_was_stopped_does_not_wait_for_its_copy(slow: Slow) -> None:
    slow.copies.begin(slow.manifest, CheckpointSection())
    slow.copies.close(unwatched, 0.0)
    assert says("step 3 is not copied yet: a resumed run copies it", slow.told[0])
    slow.ends.set()
    slow.copies.close(unwatched, 60.0)
    assert says("copied step 3 to", slow.told[1])


def test_a_place_that_is_gone_later_ends_no_later_attempt(
    text: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.write_text("no directory")
    with pytest.raises(RecipeError):
        run(text, kept, f"checkpoint.copy_to={gone}")
    monkeypatch.setenv("MNTRAIN_RUN_ATTEMPT", "2")
    assert run(text, kept, f"checkpoint.copy_to={gone}").losses
