"""Steps that are read one late, as on a GPU, tried on a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.model.errors import NotFiniteError
from jupyter_mntrain.model.lifecycle.running_changes import SettingsRequest
from jupyter_mntrain.recipe.learning_rate import ratio_at
from jupyter_mntrain.telemetry.controls import Controls, write_controls
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train import TrainResult, loop, parse_recipe
from jupyter_mntrain.train.pipeline.steps import QueuedStep
from jupyter_mntrain.train.pipeline.stopwatch import StageMeter, Stopwatch
from jupyter_mntrain.train.world import join_world
from tests.train import forked
from tests.train.checkpoint.saved import SETTINGS, run, saves
from tests.train.no_reads import HostReadError, NoReads
from tests.train.ranks import run_ranks
from tests.train.test_command import write_text
from tests.train.test_finite import OVERFLOWS
from tests.wording import says

EVALUATES = ("evaluation.interval_steps=4", "evaluation.share=0.2", "evaluation.sequences=5")


class Late(loop.Trainer):
    """Reads each step one late."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.reads_late = True


def test_gradients_of_weights_that_are_computed_later_count_as_computing() -> None:
    called: list[Any] = []
    computing = ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk")
    messages = [f"get_{way}_{end}_ops" for way in ("fwd", "bwd") for end in ("send", "recv")]

    def call(*arguments: Any, **how: Any) -> None:
        called.append((*arguments, how))

    methods = dict.fromkeys(computing, call) | dict.fromkeys(messages, list)
    stage: Any = SimpleNamespace(stage_index=1, **methods)
    meter = StageMeter(Stopwatch(torch.device("cpu")))
    meter.attach(stage)
    stage.forward_one_chunk(0)
    stage.backward_one_chunk(0, full_backward=False)
    stage.backward_weight_one_chunk(0)
    assert called == [(0, {}), (0, {"full_backward": False}), (0, {})]
    assert [one.kind for one in meter.take().timed] == ["F", "I", "W"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text")


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What is begun, read and saved, as it happens, by trainers that read late."""
    order: list[tuple[str, int]] = []

    class Told(Late):
        def begin(self, step: int) -> QueuedStep:
            order.append(("begin", step + 1))
            return super().begin(step)

        def _end(self, step: QueuedStep, reports: Any) -> dict[str, Any]:
            order.append(("read", step.number))
            return super()._end(step, reports)

    monkeypatch.setattr(loop, "Trainer", Told)
    return order


def lines(folder: Path) -> list[dict[str, Any]]:
    """What was recorded, without what differs from run to run."""
    found = [json.loads(line) for line in (folder / "rank-0.ndjson").read_text().splitlines()]
    kept = ("kind", "step", "loss", "grad_norm", "learning_rate", "tokens", "flops")
    return [
        {name: one[name] for name in kept if name in one}
        for one in found
        if one["kind"] in {"step", "evaluation", "saved"}
    ]


def recorded(
    text: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str
) -> tuple[TrainResult, list[dict[str, Any]]]:
    monkeypatch.setenv("MNTRAIN_METRICS_DIR", str(folder))
    return run(text, folder / "kept", *more), lines(folder)


@pytest.mark.parametrize(
    "more",
    [(), ("data.packing=best-fit",), ("model.dtype=bfloat16", "optimizer.kind=adafactor")],
    ids=["wrapped", "packed", "bfloat16"],
)
def test_a_step_queues_its_work_without_reading_anything(text: Path, more: tuple[str, ...]) -> None:
    fields = (f"data.source={text}", *SETTINGS, "checkpoint.interval_steps=0", *more)
    recipe = parse_recipe("", fields)
    with Recorder() as recorder, join_world("cpu", 60) as world:
        trainer = loop.Trainer(recipe, world, recorder)
        trainer.begin(0).read(trainer.stopwatch)  # torch's pipeline looks at its first microbatch
        batch = trainer.batches.batch(1)
        assert batch.counted  # of the host's own copy
        trainer.batches.batch = lambda _: batch  # type: ignore[method-assign]
        with NoReads() as mode:
            step = trainer.begin(1)
        is_adamw = recipe.optimizer.kind == "adamw"
        assert ("_fused_adamw_" in mode.operations) == is_adamw
        sample, _ = step.read(trainer.stopwatch)
        assert sample["loss"] > 0
        assert sample["step_s"] > 0
        with NoReads(), pytest.raises(HostReadError):
            step.read(trainer.stopwatch)


def test_each_step_is_read_while_the_next_one_is_computed(
    text: Path, tmp_path: Path, order: list[tuple[str, int]]
) -> None:
    run(text, tmp_path / "kept", "train.steps=8", "checkpoint.interval_steps=6")
    pair = [("begin", 1), ("begin", 2), ("read", 1), ("read", 2)]  # then the links are measured
    saved = [("begin", 3), ("begin", 4), ("read", 3), ("begin", 5), ("read", 4), ("begin", 6)]
    last = [("read", 5), ("read", 6), ("begin", 7), ("begin", 8), ("read", 7), ("read", 8)]
    assert order == [*pair, *saved, *last]


@pytest.mark.slow
def test_what_is_recorded_saved_and_learned_is_the_same(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, told = recorded(text, tmp_path / "a", monkeypatch, *EVALUATES)
    monkeypatch.setattr(loop, "Trainer", Late)
    late, told_late = recorded(text, tmp_path / "b", monkeypatch, *EVALUATES)
    assert (late.losses, late.gradient_norms) == (at_once.losses, at_once.gradient_norms)
    assert late.evaluations == at_once.evaluations
    assert len(late.step_s) == len(at_once.step_s)
    assert [one for one in told_late if one["kind"] != "saved"] == [
        one for one in told if one["kind"] != "saved"
    ]
    assert saves(tmp_path / "a" / "kept") == saves(tmp_path / "b" / "kept")


def test_a_step_that_fails_leaves_the_one_before_it_told(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Late):
        def begin(self, step: int) -> QueuedStep:
            if step == 4:
                raise RuntimeError("lost")
            return super().begin(step)

    monkeypatch.setenv("MNTRAIN_METRICS_DIR", str(tmp_path))
    monkeypatch.setattr(loop, "Trainer", Failing)
    with pytest.raises(RuntimeError, match="lost"):
        run(text, tmp_path / "kept", "train.steps=8", "checkpoint.interval_steps=0")
    assert [one["step"] for one in lines(tmp_path) if one["kind"] == "step"] == [1, 2, 3, 4]


@pytest.mark.slow
def test_nan_is_found_one_step_late_and_never_saved(
    text: Path, tmp_path: Path, order: list[tuple[str, int]]
) -> None:
    with pytest.raises(NotFiniteError) as caught:
        run(text, tmp_path / "kept", *OVERFLOWS)
    step = caught.value.problem.step
    assert step is not None
    assert order[-1] == ("read", step), "it names the step that had it"
    last = (step - 1) // 3 * 3
    assert saves(tmp_path / "kept")[-1] == f"step-{last:08d}"


@pytest.mark.slow
@pytest.mark.parametrize("is_stop", [False, True])
def test_a_wish_is_granted_one_step_later_and_once(
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    order: list[tuple[str, int]],
    is_stop: bool,
) -> None:
    monkeypatch.setenv("MNTRAIN_METRICS_DIR", str(tmp_path))
    wish = Controls(is_stop=True) if is_stop else Controls(saves=("a",))
    begin = loop.Trainer.begin

    def wished(self: Any, step: int) -> QueuedStep:
        if step + 1 == 4:
            write_controls(tmp_path, wish)
        return begin(self, step)

    monkeypatch.setattr(loop.Trainer, "begin", wished)
    fields = ("checkpoint.interval_steps=0", "checkpoint.at_end=false", "train.steps=20")
    result = run(text, tmp_path / "kept", *fields)
    assert saves(tmp_path / "kept") == ["step-00000005"]
    assert len(result.losses) == (5 if is_stop else 20)
    assert ("read", 5) in order
    assert order.index(("read", 5)) < len(order) - 1 or is_stop


@pytest.mark.parametrize("is_late", [False, True])
def test_settings_are_taken_between_two_steps_and_kept_with_what_is_saved(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    if is_late:
        monkeypatch.setattr(loop, "Trainer", Late)
    monkeypatch.setenv("MNTRAIN_METRICS_DIR", str(tmp_path))
    settings = ("train.steps=12", "optimizer.learning_rate=1e-4", "checkpoint.interval_steps=4")
    asked = SettingsRequest("a", 1, settings, by="ada@lab")
    undone = SettingsRequest("b", 1, ("train.steps=3",))
    begin = loop.Trainer.begin

    def wished(self: Any, step: int) -> QueuedStep:
        if step + 1 == 5:
            write_controls(tmp_path, Controls(settings=(asked, undone)))
        return begin(self, step)

    monkeypatch.setattr(loop.Trainer, "begin", wished)
    before = ("checkpoint.interval_steps=0", "train.steps=8", "optimizer.warmup_steps=0")
    result = run(text, tmp_path / "kept", *before)
    taken = 6 if is_late else 5
    told = [json.loads(line) for line in (tmp_path / "rank-0.ndjson").read_text().splitlines()]
    change, refused = (one["change"] for one in told if one["kind"] == "settings")
    assert (change["step"], change["by"]) == (taken, "ada@lab")
    assert [f"{one['name']}={one['after']}" for one in change["values"]] == [
        "train.steps=12", "optimizer.learning_rate=0.0001", "checkpoint.interval_steps=4",
    ]  # fmt: skip
    assert says("train.steps = 3", refused["refused"]["cause"])
    assert len(result.losses) == 12
    old, new = parse_recipe("", before), parse_recipe("", (*before, *settings))
    assert [one["learning_rate"] for one in told if one["kind"] == "step"] == [
        one.optimizer.learning_rate * ratio_at(one, step)
        for step in range(12)
        for one in [old if step < taken else new]
    ]
    kept = CheckpointDirectory(tmp_path / "kept")
    assert sorted(kept.manifests()) == [8, 12], "step 8 is not the last one any longer"
    recipes = [one.recipe or {} for one in kept.manifests().values()]
    assert [one["train"]["steps"] for one in recipes] == [12, 12]


def train_late(words: list[str]) -> None:
    loop.Trainer = Late  # type: ignore[misc]
    forked.train(words)


@pytest.mark.slow
def test_ranks_that_read_late_do_what_ranks_that_read_at_once_do(
    text: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("")
    told = {}
    for name, program in (("at once", forked.train), ("late", train_late)):
        fields = (*SETTINGS, *EVALUATES, f"data.source={text}")
        fields = (*fields, f"checkpoint.directory={tmp_path / name / 'kept'}", "train.steps=13")
        fields = (*fields, "optimizer.schedule=constant", "optimizer.warmup_steps=1")
        options = [word for one in fields for word in ("--set", one)]
        metrics = tmp_path / name
        metrics.mkdir()
        # Steps alone change nothing before the end with a constant learning rate.
        asked = SettingsRequest("a", 1, ("train.steps=14",))
        write_controls(metrics, Controls(settings=(asked,)))
        ended = run_ranks(recipe, "ab", *options, metrics=metrics, program=program)
        assert [one.exit_code for one in ended] == [0, 0], ended
        told[name] = [one for one in lines(metrics) if one["kind"] != "saved"]
        assert told[name][-1]["step"] == 14
        taken = [
            json.loads(line)["change"]["step"]
            for rank in range(2)
            for line in (metrics / f"rank-{rank}.ndjson").read_text().splitlines()
            if '"settings"' in line
        ]
        assert taken == [2 if name == "late" else 1] * 2, "both ranks after the same step"
    assert told["late"] == told["at once"]
    assert saves(tmp_path / "late" / "kept") == saves(tmp_path / "at once" / "kept")
