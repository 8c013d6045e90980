"""Lightning's own Trainer, on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader
from transformers import LlamaForCausalLM

from jupyter_mntrain import MntrainLightningCallback
from jupyter_mntrain.model.environment import METRICS_VARIABLE
from jupyter_mntrain.model.records.metrics import RankEnd, RankSaved, RankStart, RankStep
from jupyter_mntrain.telemetry.callbacks.device_number import DeviceNumber
from jupyter_mntrain.telemetry.controls import Controls, write_controls
from jupyter_mntrain.telemetry.formulas import stage_flops_per_token
from jupyter_mntrain.train.model.decoder import model_shape
from tests.telemetry.callbacks.conftest import Read, Reads, evaluations

pytestmark = [
    pytest.mark.slow,
    # Lightning's words about a small run on a machine of few cores, and what its parts are made of.
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    # On a machine of a SLURM cluster.
    pytest.mark.filterwarnings("ignore:The .srun. command is available:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*The number of training batches:UserWarning"),
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
]

LENGTH = 8


@pytest.fixture(autouse=True)
def srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine of a SLURM cluster Lightning warns, and everything works as elsewhere."""
    command = tmp_path / "bin" / "srun"
    command.parent.mkdir()
    command.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")


class Writer(LightningModule):
    """Notes what Lightning itself has logged of it."""

    def __init__(self, decoder: LlamaForCausalLM) -> None:
        super().__init__()
        self.decoder = decoder
        self.logged: list[float] = []

    def training_step(self, ids: torch.Tensor, index: int) -> torch.Tensor:
        loss = self.decoder(input_ids=ids, labels=ids).loss
        self.log("train_loss", loss)
        self.logged.append(float(loss.detach()))
        return loss

    def validation_step(self, ids: torch.Tensor, index: int) -> None:
        self.log("val_loss", self.decoder(input_ids=ids, labels=ids).loss)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, total_iters=5)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


class Wisher(Callback):
    def __init__(self, directory: Path, at: int, wish: Controls) -> None:
        self.directory, self.at, self.wish = directory, at, wish

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        if trainer.global_step + 1 == self.at:
            write_controls(self.directory, self.wish)


def fit(module: LightningModule, *callbacks: Callback, **settings: Any) -> Trainer:
    ids = torch.randint(0, 64, (16, LENGTH), generator=torch.Generator().manual_seed(1))
    fixed = {
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "max_epochs": 1,
    }
    trainer = Trainer(callbacks=list(callbacks), **(fixed | settings))
    trainer.fit(module, DataLoader(ids, batch_size=2), DataLoader(ids[:4], batch_size=2))
    return trainer


def steps_of(read: Read) -> list[RankStep]:
    return [one for one in read() if isinstance(one, RankStep)]


def test_every_step_is_what_lightning_itself_saw(decoder: LlamaForCausalLM, read: Read) -> None:
    module = Writer(decoder)
    trainer = fit(module, MntrainLightningCallback())
    start = next(one for one in read() if isinstance(one, RankStart))
    assert (start.device, start.total_steps, start.saves) == ("cpu", 8, True)
    assert start.parameters == decoder.num_parameters()
    assert start.peak_flops_per_s
    flops = stage_flops_per_token(model_shape(decoder.config), LENGTH, layers=2, has_head=True)
    steps = steps_of(read)
    assert [step.step for step in steps] == list(range(1, trainer.global_step + 1))
    assert [step.loss for step in steps] == module.logged
    assert [step.tokens for step in steps] == [2 * LENGTH] * 8
    assert [step.flops for step in steps] == [2 * LENGTH * flops] * 8
    rates = [0.1, 0.09, 0.08, 0.07, 0.06, 0.05, 0.05, 0.05]
    assert [step.learning_rate for step in steps] == pytest.approx(rates)
    assert all(step.grad_norm and step.memory_bytes and step.step_s > 0 for step in steps)
    evaluated = {one.step: one.loss for one in evaluations(read)}
    assert evaluated == {8: float(trainer.callback_metrics["val_loss"])}
    assert isinstance(read()[-1], RankEnd)


def test_micro_batches_are_one_step(decoder: LlamaForCausalLM, read: Read) -> None:
    module = Writer(decoder)
    fit(module, MntrainLightningCallback(), accumulate_grad_batches=4)
    steps = steps_of(read)
    assert [step.tokens for step in steps] == [4 * 2 * LENGTH] * 2
    means = [sum(module.logged[:4]) / 4, sum(module.logged[4:]) / 4]
    assert [step.loss for step in steps] == pytest.approx(means)


def test_the_gradient_norm_is_that_before_the_update(decoder: LlamaForCausalLM, read: Read) -> None:
    norms = []

    class Norms(Callback):
        def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
            squares = [one.grad.square().sum() for one in module.parameters()]
            norms.append(float(torch.stack(squares).sum().sqrt()))

    fit(Writer(decoder), MntrainLightningCallback(), Norms(), max_steps=3)
    assert [step.grad_norm for step in steps_of(read)] == pytest.approx(norms)


def test_numbers_are_read_one_step_late_so_a_gpu_does_not_wait(
    decoder: LlamaForCausalLM, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, begun, read_late = Reads(), 0, []

    class OnGpu(DeviceNumber):
        """Computed only some time after the next step was queued."""

        is_known = False

        def __init__(self, value: torch.Tensor) -> None:
            super().__init__(value)
            self.step = begun

        def read(self) -> float:
            read_late.append((self.step, begun))
            return super().read()

    class Counted(MntrainLightningCallback):
        def on_train_batch_start(self, *arguments: Any) -> None:
            nonlocal begun
            begun += arguments[-1] % 2 == 0
            with reads:
                super().on_train_batch_start(*arguments)

        def on_before_optimizer_step(self, *arguments: Any) -> None:
            with reads:
                super().on_before_optimizer_step(*arguments)

        def on_train_batch_end(self, *arguments: Any) -> None:
            with reads:
                super().on_train_batch_end(*arguments)

    monkeypatch.setattr("jupyter_mntrain.telemetry.callbacks.device_number.DeviceNumber", OnGpu)
    module = Writer(decoder)
    fit(module, Counted(), accumulate_grad_batches=2, limit_val_batches=0)
    loss_and_norm = 2
    late = [(step, step + 1) for step in (1, 2, 3) for _ in range(loss_and_norm)]
    assert read_late == [*late, (4, 4), (4, 4)], "the last ones at the end"
    assert reads.count == len(late), "nothing else is read during training"
    steps = steps_of(read)
    means = [sum(module.logged[at : at + 2]) / 2 for at in (0, 2, 4, 6)]
    assert [step.loss for step in steps] == pytest.approx(means)
    assert all(step.grad_norm for step in steps)


@pytest.mark.parametrize("is_stop", [False, True])
def test_wishes_are_met_by_lightnings_own_means(
    decoder: LlamaForCausalLM, job: Path, read: Read, tmp_path: Path, is_stop: bool
) -> None:
    wisher = Wisher(job, 3, Controls(saves=("now",), is_stop=is_stop))
    trainer = fit(Writer(decoder), MntrainLightningCallback(), wisher)
    assert [one.step for one in read() if isinstance(one, RankSaved)] == [3]
    saved = torch.load(tmp_path / "checkpoints" / "step-3.ckpt", weights_only=True)
    assert saved["global_step"] == 3
    assert trainer.global_step == (3 if is_stop else 8)
    assert len(steps_of(read)) == trainer.global_step


def test_an_error_is_the_last_line(decoder: LlamaForCausalLM, read: Read) -> None:
    class Fails(Callback):
        def on_train_batch_end(self, trainer: Any, *others: Any) -> None:
            if trainer.global_step == 2:
                raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        fit(Writer(decoder), MntrainLightningCallback(), Fails())
    end = read()[-1]
    assert isinstance(end, RankEnd)
    assert (end.ok, end.message) == (False, "ValueError: no more")
    assert [step.step for step in steps_of(read)] == [1, 2]


def test_outside_of_a_job_nothing_happens(
    decoder: LlamaForCausalLM, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(METRICS_VARIABLE)
    fit(Writer(decoder), MntrainLightningCallback(), max_steps=2)
    assert list(job.iterdir()) == []


OLD_NAME = """
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from jupyter_mntrain import MntrainLightningCallback

class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

assert issubclass(MntrainLightningCallback, Callback)
trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, max_epochs=1,
                  enable_progress_bar=False, callbacks=[MntrainLightningCallback()])
trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(6, 4), batch_size=2))
"""


def test_lightning_by_its_old_name(job: Path, read: Read) -> None:
    subprocess.run([sys.executable, "-c", OLD_NAME], check=True, capture_output=True)
    steps = steps_of(read)
    assert [step.step for step in steps] == [1, 2, 3]
    assert [step.tokens for step in steps] == [None] * 3  # pictures, say
    assert all(step.loss is not None for step in steps)
