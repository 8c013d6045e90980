"""Accelerate's own loop, on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch.utils.data import DataLoader
from transformers import LlamaForCausalLM

from jupyter_mntrain import MntrainTracker
from jupyter_mntrain.model.environment import METRICS_VARIABLE
from jupyter_mntrain.model.records.metrics import RankEnd, RankSaved, RankStart, RankStep
from jupyter_mntrain.telemetry.callbacks.device_number import DeviceNumber
from jupyter_mntrain.telemetry.controls import Controls, write_controls
from jupyter_mntrain.telemetry.formulas import stage_flops_per_token
from jupyter_mntrain.train.model.decoder import model_shape
from tests.telemetry.callbacks.conftest import Read, Reads, evaluations

LENGTH = 8


@pytest.fixture(autouse=True)
def forget_accelerators() -> Iterator[None]:
    """Accelerate keeps its state in the process."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def train(decoder: LlamaForCausalLM, tracker: MntrainTracker, ask: Any = None) -> list[float]:
    """The losses of eight steps, or as many as were wanted."""
    ids = torch.randint(0, 64, (16, LENGTH), generator=torch.Generator().manual_seed(1))
    accelerator = Accelerator(cpu=True)
    optimizer = torch.optim.SGD(decoder.parameters(), lr=0.1)
    model, optimizer, batches = accelerator.prepare(
        decoder, optimizer, DataLoader(ids, batch_size=2)
    )
    losses = []
    for step, batch in enumerate(batches, start=1):
        loss = model(input_ids=batch, labels=batch).loss
        accelerator.backward(loss)
        norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        tracker.log({"loss": loss, "lr": 0.1, "grad_norm": norm, "accuracy": 0.5}, step=step)
        if step % 4 == 0:
            model.eval()
            with torch.no_grad():
                evaluated = model(input_ids=ids, labels=ids).loss
            tracker.log({"eval_loss": evaluated + step}, step=step)
            model.train()
        if ask is not None and ask(accelerator, step):
            break
    tracker.finish()
    return losses


def steps_of(read: Read) -> list[RankStep]:
    return [one for one in read() if isinstance(one, RankStep)]


def test_every_step_is_what_the_loop_logs(decoder: LlamaForCausalLM, read: Read) -> None:
    losses = train(decoder, MntrainTracker(decoder, total_steps=8))
    start = next(one for one in read() if isinstance(one, RankStart))
    assert (start.device, start.total_steps, start.saves) == ("cpu", 8, True)
    assert start.parameters == decoder.num_parameters()
    flops = stage_flops_per_token(model_shape(decoder.config), LENGTH, layers=2, has_head=True)
    steps = steps_of(read)
    assert [step.step for step in steps] == list(range(1, 9))
    assert [step.loss for step in steps] == losses
    assert [step.tokens for step in steps] == [2 * LENGTH] * 8
    assert [step.flops for step in steps] == [2 * LENGTH * flops] * 8
    assert [step.learning_rate for step in steps] == [0.1] * 8
    assert all(step.grad_norm and step.memory_bytes for step in steps)
    evaluated = {one.step: one.loss for one in evaluations(read)}
    assert list(evaluated) == [4, 8]
    assert 4 < (evaluated[4] or 0) < 4 + 5
    end = read()[-1]
    assert isinstance(end, RankEnd)
    assert end.ok
    assert not decoder._forward_pre_hooks


def test_tensors_are_read_one_step_late_so_a_gpu_does_not_wait(
    decoder: LlamaForCausalLM, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, last, read_late = Reads(), 0, []

    class OnGpu(DeviceNumber):
        """Computed only some time after the next step was queued."""

        is_known = False

        def __init__(self, value: torch.Tensor) -> None:
            super().__init__(value)
            self.step = last

        def read(self) -> float:
            read_late.append((self.step, last))
            return super().read()

    class Counted(MntrainTracker):
        def log(self, values: Any, step: int | None = None, **others: Any) -> None:
            nonlocal last
            if "loss" in values:
                last = step or 0
                with reads:
                    super().log(values, step)

    monkeypatch.setattr("jupyter_mntrain.telemetry.callbacks.device_number.DeviceNumber", OnGpu)
    losses = train(decoder, Counted(decoder))
    loss_and_norm = 2
    late = [(step, step + 1) for step in range(1, 8) for _ in range(loss_and_norm)]
    assert read_late == [*late, (8, 8), (8, 8)], "the last ones at the end"
    assert reads.count == len(late), "nothing else is read during training"
    assert [step.loss for step in steps_of(read)] == losses


def test_as_a_tracker_of_the_accelerators_own_it_takes_what_accelerator_log_gets(
    decoder: LlamaForCausalLM, read: Read
) -> None:
    tracker = MntrainTracker()
    accelerator = Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("mine", config={"total_steps": 3})
    for _ in range(3):
        accelerator.log({"train_loss": 2.0, "tokens": 100})
    accelerator.end_training()
    steps = steps_of(read)
    assert [(step.step, step.tokens, step.loss) for step in steps] == [
        (1, 100, 2.0),
        (2, 100, 2.0),
        (3, 100, 2.0),
    ]
    assert [step.flops for step in steps] == [None] * 3
    start = next(one for one in read() if isinstance(one, RankStart))
    assert (start.total_steps, start.parameters) == (3, None)
    assert isinstance(read()[-1], RankEnd)


@pytest.mark.parametrize("is_stop", [False, True])
def test_wishes_reach_the_loop(
    decoder: LlamaForCausalLM, job: Path, read: Read, tmp_path: Path, is_stop: bool
) -> None:
    tracker = MntrainTracker(decoder)

    def ask(accelerator: Accelerator, step: int) -> bool:
        if step == 3:
            write_controls(job, Controls(saves=("now",), is_stop=is_stop))
        wish = tracker.wish()
        if wish.save:
            accelerator.save_state(str(tmp_path / "saved"))
            tracker.saved()
        return wish.stop

    losses = train(decoder, tracker, ask)
    assert len(losses) == len(steps_of(read)) == (3 if is_stop else 8)
    assert [one.step for one in read() if isinstance(one, RankSaved)] == [3]
    assert (tmp_path / "saved" / "model.safetensors").exists()


def test_outside_of_a_job_nothing_happens(
    decoder: LlamaForCausalLM, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(METRICS_VARIABLE)
    tracker = MntrainTracker(decoder)
    assert len(train(decoder, tracker, lambda accelerator, step: tracker.wish().stop)) == 8
    assert tracker.tracker is None
    assert list(job.iterdir()) == []
