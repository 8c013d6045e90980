"""Saving and going on: whole or not at all, and with the losses of a run that was never cut off."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.telemetry.controls import ControlReader, Controls, write_controls
from jupyter_mntrain.train import TrainResult, parse_recipe, train
from jupyter_mntrain.train.checkpoint import copying
from jupyter_mntrain.train.checkpoint.copying import keepers_of
from jupyter_mntrain.train.checkpoint.directory import (
    MANIFEST,
    CheckpointDirectory,
    Manifest,
    shard_name,
)
from jupyter_mntrain.train.checkpoint.resuming import Held, choose
from tests.train.ranks import Ended, run_ranks
from tests.train.test_command import losses, read, write_text

STEPS = 9
EVERY = 3
SETTINGS = (
    *("model.preset=llama-tiny", "data.vocabulary_size=300", "data.sequence_length=16"),
    *("pipeline.microbatches=2", "train.device=cpu", f"train.steps={STEPS}"),
    *("train.batch_size=4", f"checkpoint.interval_steps={EVERY}", "checkpoint.keep=9"),
    *("report.to=[]", "output.at_end=false"),  # nothing but checkpoints is of interest here
)


def saves(kept: Path) -> list[str]:
    """Whole checkpoints and halves of them."""
    return sorted(path.name for path in kept.glob("*step-*"))


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


@pytest.mark.slow
def test_what_is_cut_off_goes_on_with_the_same_losses(text: Path, kept: Path) -> None:
    whole = run(text, kept)
    assert sorted(CheckpointDirectory(kept).manifests()) == [3, 6, 9]
    for last, lost in ((6, (9,)), (3, (6, 9))):
        forget(kept, *lost)
        again = run(text, kept)
        assert again.losses == whole.losses[last:]
        assert again.gradient_norms == whole.gradient_norms[last:]


CHOICES = [
    *(("float32", "plain", kind) for kind in ("adafactor", "adamw-8bit")),
    *(("bfloat16", precision, "adamw") for precision in ("plain", "float32-master")),
    *(("bfloat16", "stochastic-rounding", kind) for kind in ("adamw", "adamw-4bit", "adafactor")),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:OptimState.bit does not implement _stable_hash:UserWarning")
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.parametrize(("dtype", "precision", "kind"), CHOICES)
def test_every_optimizer_goes_on_as_if_never_cut_off(
    text: Path, kept: Path, dtype: str, precision: str, kind: str
) -> None:
    changes = [f"model.dtype={dtype}", f"optimizer.kind={kind}", f"optimizer.precision={precision}"]
    # Relative to the size of a weight, which is a hundredth at first.
    changes += ["optimizer.learning_rate=0.1"] if kind == "adafactor" else []
    whole = run(text, kept, *changes)
    assert whole.losses[-1] < whole.losses[0] - 0.05
    forget(kept, 6, 9)
    again = run(text, kept, *changes)
    assert again.losses == whole.losses[3:]
    assert again.gradient_norms == whole.gradient_norms[3:]


def test_a_checkpoint_of_another_optimizer_is_refused(text: Path, kept: Path) -> None:
    run(text, kept)
    with pytest.raises(RecipeError, match=r"lacks optimizer/row_var/.*set optimizer.kind, "):
        run(text, kept, "optimizer.kind=adafactor")


@pytest.mark.slow
def test_a_run_that_is_over_stays_over(text: Path, kept: Path) -> None:
    run(text, kept)
    assert run(text, kept).losses == ()


@pytest.mark.slow
def test_as_many_as_were_asked_for_stay(text: Path, kept: Path) -> None:
    run(text, kept, "checkpoint.keep=1", "checkpoint.interval_steps=2")
    assert sorted(CheckpointDirectory(kept).manifests()) == [9]
    assert saves(kept) == ["step-00000009"]


@pytest.mark.slow
def test_nothing_is_saved_that_nobody_wants(text: Path, kept: Path) -> None:
    run(text, kept, "checkpoint.interval_steps=0", "checkpoint.at_end=false")
    assert not saves(kept)


@pytest.mark.slow
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
    with pytest.raises(RecipeError, match="was made with different data or batches"):
        run(text, kept, "data.seed=5")
    with pytest.raises(RecipeError, match="a relative path is not allowed"):
        parse_recipe("", ["checkpoint.directory=here"])


def test_a_directory_that_cannot_be_written_is_told_before_the_first_step(
    text: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(RecipeError, match=r"cannot save checkpoints: .*Not a directory"):
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
    assert re.search(r"step 3 could not be saved: \S+: .*No space left on device.*continues", said)


def test_a_disk_is_never_filled_to_the_last(
    text: Path, kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(copying, "LEFT_FREE_BYTES", 1 << 60)
    assert len(run(text, kept, "output.at_end=true").losses) == STEPS
    assert not saves(kept), "no half of one is left"
    assert not list(kept.glob("*model*"))
    out = capsys.readouterr().out
    assert "GB do not fit into" in out


class Nodes:
    """Nodes a, b, … with a disk each and a rank each."""

    def __init__(self, text: Path, tmp_path: Path, count: int, *more: str) -> None:
        self._recipe = tmp_path / "recipe.toml"
        self._recipe.write_text("")
        settings = [f"data.source={text}", *SETTINGS, *more]
        self._options = [word for one in settings for word in ("--set", one)]
        self._directory = tmp_path
        self.disks = [tmp_path / f"disk-{name}" for name in "abc"[:count]]

    def run(self, name: str, nodes: str, **more: Any) -> list[Ended]:
        places = [
            {"MNTRAIN_CHECKPOINT_DIR": str(self._directory / f"disk-{node}")} for node in nodes
        ]
        metrics = self._directory / name
        more |= {"metrics": metrics, "environments": places}
        return run_ranks(self._recipe, nodes, *self._options, **more)

    def losses(self, name: str, nodes: str, **more: Any) -> list[float]:
        ended = self.run(name, nodes, **more)
        assert [one.exit_code for one in ended] == [0] * len(nodes), ended
        return losses(read(self._directory / name, 0))


@pytest.mark.slow
def test_a_node_may_be_lost_with_its_disk_where_its_neighbor_has_a_copy(
    text: Path, tmp_path: Path
) -> None:
    nodes = Nodes(text, tmp_path, 3, "checkpoint.copies=2", "pipeline.microbatches=4")
    whole = nodes.losses("whole", "abc")
    step = "step-00000006"
    for disk, shards in zip(nodes.disks, ((0, 2), (0, 1), (1, 2)), strict=True):
        names = sorted(path.name for path in (disk / step).iterdir())
        assert names == [MANIFEST, *map(shard_name, shards)]
        forget(disk, 9)
    shutil.rmtree(nodes.disks[1])
    assert nodes.losses("rest", "ac") == pytest.approx(whole[6:], rel=1e-5)


@pytest.mark.slow
def test_what_is_left_of_a_checkpoint_is_not_thrown_away(text: Path, tmp_path: Path) -> None:
    nodes = Nodes(text, tmp_path, 2)
    nodes.losses("whole", "ab")
    (alone,) = nodes.run("alone", "a")
    assert alone.exit_code == 2
    assert "step 9 the shards of rank 1, saved on b, are nowhere here" in alone.err
    assert "launch it with all nodes that saved it" in alone.err
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
    nodes = Nodes(text, tmp_path, 2)
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


@pytest.mark.slow
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
