"""Saving and going on: whole or not at all, and with the losses of a run that was never cut off."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.telemetry.controls import ControlReader, Controls, write_controls
from jupyter_mntrain.train import TrainResult, parse_recipe, saving, train
from jupyter_mntrain.train.checkpoints import MANIFEST, CheckpointDirectory, Manifest, shard_name
from jupyter_mntrain.train.resuming import Held, choose
from tests.train.ranks import run_ranks
from tests.train.test_command import losses, read, write_text

STEPS = 9
EVERY = 3
SETTINGS = (
    *("model.preset=llama-tiny", "data.vocabulary_size=300", "data.sequence_length=16"),
    *("pipeline.microbatches=2", "train.device=cpu", f"train.steps={STEPS}"),
    *("train.batch_size=4", f"checkpoint.interval_steps={EVERY}", "checkpoint.keep=9"),
)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def run(text: Path, kept: Path, *overrides: str) -> TrainResult:
    changes = (f"data.source={text}", f"checkpoint.directory={kept}", *SETTINGS, *overrides)
    return train(parse_recipe("", changes))


def forget(kept: Path, *steps: int) -> None:
    """As if the run had been cut off before these were saved."""
    for step in steps:
        shutil.rmtree(CheckpointDirectory(kept).of(step))


def test_what_is_cut_off_goes_on_with_the_same_losses(text: Path, kept: Path) -> None:
    whole = run(text, kept)
    assert sorted(CheckpointDirectory(kept).manifests()) == [3, 6, 9]
    for last, lost in ((6, (9,)), (3, (6, 9))):
        forget(kept, *lost)
        again = run(text, kept)
        assert again.losses == whole.losses[last:]
        assert again.gradient_norms == whole.gradient_norms[last:]


@pytest.mark.slow
def test_a_run_that_is_over_stays_over(text: Path, kept: Path) -> None:
    run(text, kept)
    assert run(text, kept).losses == ()


@pytest.mark.slow
def test_as_many_as_were_asked_for_stay(text: Path, kept: Path) -> None:
    run(text, kept, "checkpoint.keep=1", "checkpoint.interval_steps=2")
    assert sorted(CheckpointDirectory(kept).manifests()) == [9]
    assert [path.name for path in kept.iterdir()] == ["step-00000009"]


@pytest.mark.slow
def test_nothing_is_saved_that_nobody_wants(text: Path, kept: Path) -> None:
    run(text, kept, "checkpoint.interval_steps=0", "checkpoint.at_end=false")
    assert not list(kept.iterdir())


def test_a_half_of_a_checkpoint_is_none(text: Path, kept: Path) -> None:
    whole = run(text, kept)
    newest, before = CheckpointDirectory(kept).of(9), CheckpointDirectory(kept).of(6)
    shard = newest / shard_name(0)
    shard.write_bytes(shard.read_bytes()[:-1])
    (before / MANIFEST).write_text("{")
    left = kept / ".step-00000008.attempt-7"
    left.mkdir()
    assert run(text, kept).losses == whole.losses[3:]
    assert not left.exists()


@pytest.mark.slow
def test_a_checkpoint_of_something_else_is_refused(text: Path, kept: Path) -> None:
    run(text, kept)
    with pytest.raises(RecipeError, match=r"step 9 in .*kept is of another model"):
        run(text, kept, "model.layers=3")
    with pytest.raises(RecipeError, match="is of other data or batches"):
        run(text, kept, "data.seed=5")
    with pytest.raises(RecipeError, match="every attempt runs in a folder of its own"):
        parse_recipe("", ["checkpoint.directory=here"])


def test_a_directory_that_cannot_be_written_is_told_before_the_first_step(
    text: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(RecipeError, match=r"no checkpoints can be saved here: .*Not a directory"):
        run(text, file / "kept")


@pytest.mark.slow
def test_a_save_that_fails_is_told_and_training_goes_on(
    text: Path, kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = CheckpointDirectory.begin

    def full(directory: CheckpointDirectory, step: int) -> Path:
        if step == EVERY:
            raise OSError(28, "No space left on device")
        return begin(directory, step)

    monkeypatch.setattr(CheckpointDirectory, "begin", full)
    assert len(run(text, kept).losses) == STEPS
    assert sorted(CheckpointDirectory(kept).manifests()) == [6, 9]
    said = capsys.readouterr().out
    assert re.search(r"step 3 could not be saved: \S+: .*No space left on device.*goes on", said)


def test_a_disk_is_never_filled_to_the_last(
    text: Path, kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(saving, "LEFT_FREE_BYTES", 1 << 60)
    assert len(run(text, kept).losses) == STEPS
    assert not list(kept.iterdir()), "no half of one is left"
    assert "GB do not fit into" in capsys.readouterr().out


@pytest.mark.slow
def test_two_nodes_with_disks_of_their_own_then_one_then_two(text: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("")
    settings = [f"data.source={text}", *SETTINGS]
    options = [word for one in settings for word in ("--set", one)]
    disks = [tmp_path / "disk-a", tmp_path / "disk-b"]

    def ranks(name: str, count: int) -> list[float]:
        places = [{"MNTRAIN_CHECKPOINT_DIR": str(disk)} for disk in disks[:count]]
        metrics = tmp_path / name
        ended = run_ranks(recipe, "ab"[:count], *options, metrics=metrics, environments=places)
        assert [one.exit_code for one in ended] == [0] * count, ended
        return losses(read(metrics, 0))

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
    assert ranks("one", 1) == pytest.approx(whole[6:], rel=1e-5)

    # Two go on with what one saved: the second gets its tensors from the first.
    shutil.rmtree(disks[1])
    forget(disks[0], 3, 6, 9)
    alone = ranks("alone", 1)
    forget(disks[0], 9)
    assert ranks("both", 2) == pytest.approx(alone[6:], rel=1e-5)


def manifest(step: int, world_size: int = 2, attempt: int = 1) -> Manifest:
    return Manifest(step=step, attempt=attempt, shard_bytes=(10,) * world_size)


def test_the_newest_that_is_whole_is_chosen() -> None:
    old, new = manifest(3), manifest(6)
    assert choose([[], []]) is None
    assert choose([[Held(old, (0,)), Held(new, (0,))], [Held(old, (1,))]]) is not None
    found = choose([[Held(old, (0,)), Held(new, (0,))], [Held(old, (1,))]])
    assert found is not None
    assert (found.manifest, found.readers) == (old, (0, 1))


def test_each_rank_reads_its_own_shard_where_it_can() -> None:
    shared = [Held(manifest(3), (0, 1))]
    found = choose([shared, shared])
    assert found is not None
    assert found.readers == (0, 1)


def test_halves_of_two_saves_of_one_step_are_no_whole() -> None:
    first, second = manifest(6, attempt=1), manifest(6, attempt=2)
    assert choose([[Held(first, (0,))], [Held(second, (1,))]]) is None


def test_any_interruption_leaves_the_one_before(tmp_path: Path) -> None:
    """Every prefix of what a save does to the disk, on either of two nodes."""
    chance = random.Random(4)
    for _ in range(200):
        shutil.rmtree(tmp_path / "at", ignore_errors=True)
        nodes = [CheckpointDirectory(tmp_path / "at" / name) for name in "ab"]
        publish(nodes, manifest(3), [9, 9])
        publish(nodes, manifest(6), [chance.randrange(5), chance.randrange(5)])
        held = [
            [Held(one, node.shards(one)) for one in node.manifests().values()] for node in nodes
        ]
        found = choose(held)
        assert found is not None
        whole = all((node.of(6) / MANIFEST).exists() for node in nodes)
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
                node.begin(one.step).rename(node.of(one.step))
            elif done >= 4:
                node.publish(one)


def test_nodes_that_share_a_directory_publish_it_together(tmp_path: Path) -> None:
    nodes = [CheckpointDirectory(tmp_path), CheckpointDirectory(tmp_path)]
    for attempt in (1, 2):
        one = manifest(6, attempt=attempt)
        for rank, node in enumerate(nodes):
            (node.begin(6) / shard_name(rank)).write_bytes(b"0123456789")
        for node in nodes:
            node.publish(one)
        assert nodes[0].manifests() == {6: one}
        assert nodes[0].shards(one) == (0, 1)
        assert [path.name for path in tmp_path.iterdir()] == ["step-00000006"]


def test_what_is_asked_reaches_a_rank(tmp_path: Path) -> None:
    wishes = ControlReader(tmp_path)
    assert not wishes.wants_save()
    write_controls(tmp_path, Controls(saves=("a",)))
    assert wishes.wants_save()
    wishes.saved()
    assert not wishes.wants_save()
    write_controls(tmp_path, Controls(saves=("a", "b"), is_stop=True))
    assert wishes.wants_save()
    assert wishes.wants_stop()
    (tmp_path / "controls.json").write_text("{")
    assert not wishes.wants_stop()
    assert not ControlReader(environment={}).wants_stop()


def test_a_run_saves_when_asked_and_ends_when_asked(
    text: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    monkeypatch.setenv("MNTRAIN_METRICS_DIR", str(metrics))
    write_controls(metrics, Controls(saves=("a",)))
    run(text, kept, "checkpoint.interval_steps=0", "checkpoint.at_end=false")
    assert sorted(CheckpointDirectory(kept).manifests()) == [1]
    shutil.rmtree(kept)
    write_controls(metrics, Controls(is_stop=True))
    assert len(run(text, kept).losses) == 1
    assert sorted(CheckpointDirectory(kept).manifests()) == [1]
    said = [json.loads(line) for line in (metrics / "rank-0.ndjson").read_text().splitlines()]
    assert [line["step"] for line in said if line["kind"] == "saved"] == [1, 1]
    assert msgspec.convert({"step": 1, "attempt": 1, "shard_bytes": [5]}, Manifest).world_size == 1
