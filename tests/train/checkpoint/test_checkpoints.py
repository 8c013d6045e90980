"""Saving and resuming: complete or not at all, and with the losses of an uninterrupted run."""

from __future__ import annotations

import json
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from jupyter_mntrain.launch.checkpoints.directory import (
    MANIFEST,
    CheckpointDirectory,
    shard_name,
)
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.checkpoint import Manifest
from jupyter_mntrain.telemetry.controls import (
    CONTROLS_FILE,
    ControlReader,
    Controls,
    write_controls,
)
from jupyter_mntrain.train import parse_recipe
from jupyter_mntrain.train.checkpoint import neighbors, saving
from jupyter_mntrain.train.checkpoint.checksums import BLOCK_BYTES, checksum
from jupyter_mntrain.train.checkpoint.saving import Checkpointing
from tests.searches import runs_all
from tests.train.checkpoint.saved import EVERY, STEPS, forget, run, saves
from tests.wording import reads, says, wording


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A save is written before the next step: one that is due meanwhile is left out."""
    after = Checkpointing.after

    def waiting(self: Checkpointing, *given: Any, **named: Any) -> bool:
        self._still_writing = 0.0
        return after(self, *given, **named)

    monkeypatch.setattr(Checkpointing, "after", waiting)


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
    text: Path,
    kept: Path,
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
    precision: str,
    kind: str,
) -> None:
    if not runs_all():
        # torchao compiles its step, for half a minute of a core each: what it keeps is the same.
        monkeypatch.setattr(torch, "compile", lambda function, **_: function)
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
    with pytest.raises(
        RecipeError, match=wording(r"lacks optimizer/row_var/.*set optimizer.kind, ")
    ):
        run(text, kept, "optimizer.kind=adafactor")


def test_other_adapters_than_those_of_a_checkpoint_are_refused(text: Path, kept: Path) -> None:
    """Some would be lost without a word, or count otherwise."""
    given = ("adapters.rank=4", "train.steps=3")
    run(text, kept, *given)
    for change, said in (
        ("adapters.rank=8", "made with adapters.rank = 4"),
        ("adapters.alpha=3", "made with no adapters.alpha"),
        ('adapters.modules=["self_attn.q_proj"]', "made with no adapters.modules"),
        ('adapters.train_whole=["head"]', "made with no adapters.train_whole"),
    ):
        with pytest.raises(RecipeError, match=wording(said)):
            run(text, kept, *given, change)
    assert run(text, kept, *given, "adapters.dropout=0.1", "adapters.quantize_base=nf4") is not None
    manifest = CheckpointDirectory(kept).of(3) / MANIFEST
    older = json.loads(manifest.read_text()) | {"recipe": None, "checksums": []}
    del older["seal"]
    manifest.write_text(json.dumps(older))
    with pytest.raises(RecipeError, match=wording(r"shape \(4, \d+\), not \(8, .*adapters.rank")):
        run(text, kept, *given, "adapters.rank=8")


@pytest.mark.slow
def test_a_run_that_is_over_stays_over(text: Path, kept: Path) -> None:
    run(text, kept)
    assert run(text, kept).losses == ()


@pytest.mark.slow
def test_as_many_as_were_asked_for_stay(text: Path, kept: Path) -> None:
    run(text, kept, "checkpoint.keep=1", "checkpoint.interval_steps=2")
    assert sorted(CheckpointDirectory(kept).manifests()) == [9]
    assert saves(kept) == ["step-00000009"]


def test_a_checkpoint_is_saved_once_the_time_has_passed(
    text: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = count(step=20)  # asked at each step: it is time after every third one
    monkeypatch.setattr(saving, "monotonic", lambda: next(ticks))
    run(text, kept, "checkpoint.interval_minutes=1", "checkpoint.interval_steps=2")
    found = set(CheckpointDirectory(kept).manifests())
    assert min(found) == 3
    assert found <= {3, 6, 7, 8, 9}, "later only where the one before was still being written"
    assert max(found) == STEPS


@pytest.mark.slow
def test_nothing_is_saved_that_nobody_wants(text: Path, kept: Path) -> None:
    run(text, kept, "checkpoint.interval_steps=0", "checkpoint.at_end=false")
    assert not saves(kept)


@pytest.mark.slow
def test_a_half_of_a_checkpoint_is_none(
    text: Path, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = run(text, kept)
    newest, before = CheckpointDirectory(kept).of(9), CheckpointDirectory(kept).of(6)
    shard = newest / shard_name(0)
    shard.write_bytes(shard.read_bytes()[:-1])
    (before / MANIFEST).write_text("{")
    left = kept / ".step-00000008.attempt-7"
    left.mkdir()
    assert run(text, kept).losses == whole.losses[3:]
    assert not left.exists()
    aside = kept / f"damaged-{newest.name}"
    assert (aside / shard_name(0)).exists(), "nobody but its owner deletes what may be repaired"
    said = capsys.readouterr().out
    assert says(f"{aside.name}, newer than step 3, was skipped and kept", said)
    assert says(f"damaged-{before.name}, newer than step 3, was skipped and kept: its", said)

    for step in (3, 6, 9):
        (CheckpointDirectory(kept).of(step) / MANIFEST).write_text("{")
    with pytest.raises(
        RecipeError, match=wording(r"step-00000009 has the shards.*manifest.json cannot be read")
    ):
        run(text, kept)
    put_aside = [f"damaged-{one.name}" for one in (before, newest)]
    assert saves(kept) == [*put_aside, *(f"step-{step:08d}" for step in (3, 6, 9))]


@pytest.mark.slow
def test_a_shard_that_is_not_what_was_saved_is_skipped_and_named(
    text: Path, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose(step: int) -> None:
        shard = CheckpointDirectory(kept).of(step) / shard_name(0)
        content = bytearray(shard.read_bytes())
        content[-4096:] = bytes(4096)
        shard.write_bytes(content)

    whole = run(text, kept)
    lose(9)
    assert run(text, kept).losses == whole.losses[6:]
    said = capsys.readouterr().out
    assert says("damaged-step-00000009, newer than step 6, was skipped and kept: rank-0", said)
    for step in (3, 6, 9):
        lose(step)
    with pytest.raises(RecipeError, match=wording(r"rank-0\.safetensors is not what was saved")):
        run(text, kept)
    assert len(CheckpointDirectory(kept).manifests()) == 3


def test_a_checksum_is_of_every_byte_and_of_the_order_of_blocks(tmp_path: Path) -> None:
    content = bytes(range(256)) * (3 * BLOCK_BYTES // 256) + b"the end"
    path = tmp_path / "shard"

    def summed(content: bytes) -> str:
        path.write_bytes(content)
        return checksum(path)

    whole = summed(content)
    assert summed(content) == whole
    first, second = b"a" * BLOCK_BYTES, b"b" * BLOCK_BYTES
    others = {
        summed(content[:-1]),
        summed(content + b"\0"),
        summed(content[:4096] + bytes(4096) + content[8192:]),
        summed(content[:-1] + b"\0"),
        summed(first + second),
        summed(second + first),
        summed(b""),
    }
    assert len({whole, *others}) == 8


@pytest.mark.slow
def test_a_checkpoint_of_something_else_is_refused(text: Path, kept: Path) -> None:
    run(text, kept)
    with pytest.raises(
        RecipeError, match=wording(r"checkpoint 9 in .*kept was made with another model")
    ):
        run(text, kept, "model.layers=3")
    with pytest.raises(RecipeError, match=wording("was made with different data or batches")):
        run(text, kept, "data.seed=5")
    with pytest.raises(RecipeError, match=wording("a relative path is not allowed")):
        parse_recipe("", ["checkpoint.directory=here"])


def test_a_directory_that_cannot_be_written_is_told_before_the_first_step(
    text: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(RecipeError, match=wording(r"cannot save checkpoints: .*Not a directory")):
        run(text, file / "kept")


@pytest.mark.slow
def test_a_save_that_fails_is_told_to_the_log_and_to_who_asked_for_it(
    text: Path,
    kept: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    begin = CheckpointDirectory.begin
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    monkeypatch.setenv("MNTRAIN_METRICS_DIR", str(metrics))
    write_controls(metrics, Controls(saves=("a",)))

    def full(directory: CheckpointDirectory, step: int) -> Path:
        if step <= EVERY:
            raise OSError(28, "No space left on device")
        return begin(directory, step)

    monkeypatch.setattr(CheckpointDirectory, "begin", full)
    assert len(run(text, kept).losses) == STEPS
    assert sorted(CheckpointDirectory(kept).manifests()) == [6, 9]
    said = capsys.readouterr().out
    assert "No space left on device" in said
    assert reads(r"\S+: step 1 could not be saved: No space left on device.*continues", said)
    lines = [json.loads(line) for line in (metrics / "rank-0.ndjson").read_text().splitlines()]
    saved = [line for line in lines if line["kind"] == "saved"]
    assert [(one["step"], one.get("is_scheduled", False)) for one in saved] == [
        (1, False),
        (3, True),
        (6, True),
        (9, True),
    ]
    problems = [one.get("problem", {}) for one in saved]
    assert [one.get("kind") for one in problems] == ["disk-full", "disk-full", None, None]
    assert problems[0]["node"]
    assert problems[0]["fix"]


def test_a_disk_is_never_filled_to_the_last(
    text: Path, kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(neighbors, "LEFT_FREE_BYTES", 1 << 60)
    assert len(run(text, kept, "output.at_end=true").losses) == STEPS
    assert not saves(kept), "no half of one is left"
    assert not list(kept.glob("*model*"))
    out = capsys.readouterr().out
    assert says(" MB are free, and ", out)
    assert says(" MB are needed", out)


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
    assert not any("is_scheduled" in line for line in said)
    (metrics / CONTROLS_FILE).unlink()
    shutil.rmtree(kept)
    run(text, kept)
    said = [json.loads(line) for line in (metrics / "rank-0.ndjson").read_text().splitlines()]
    due = [line["step"] for line in said if line.get("is_scheduled")]
    assert due == sorted(CheckpointDirectory(kept).manifests())
    assert msgspec.convert({"step": 1, "attempt": 1, "shard_bytes": [5]}, Manifest).world_size == 1
