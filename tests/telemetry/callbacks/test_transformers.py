"""transformers' own Trainer, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset
from transformers import LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from jupyter_mntrain import MntrainCallback
from jupyter_mntrain.model.environment import METRICS_VARIABLE
from jupyter_mntrain.model.records.metrics import RankEnd, RankSaved, RankStart, RankStep
from jupyter_mntrain.telemetry.controls import Controls, write_controls
from jupyter_mntrain.telemetry.formulas import stage_flops_per_token
from jupyter_mntrain.train.model.decoder import model_shape
from tests.telemetry.callbacks.conftest import Read, evaluations

pytestmark = pytest.mark.slow

LENGTH = 8


class Text(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, sequences: int) -> None:
        ids = torch.Generator().manual_seed(1)
        self.ids = torch.randint(0, 64, (sequences, LENGTH), generator=ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


class Wisher(TrainerCallback):
    """Somebody who asks for something after a step."""

    def __init__(self, directory: Path, at: int, wish: Controls) -> None:
        self.directory, self.at, self.wish = directory, at, wish

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.global_step + 1 == self.at:
            write_controls(self.directory, self.wish)


def trainer(model: LlamaForCausalLM, *callbacks: TrainerCallback, **settings: Any) -> Trainer:
    fixed = {
        "output_dir": "out",
        "use_cpu": True,
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    return Trainer(
        model,
        TrainingArguments(**(fixed | settings)),
        train_dataset=Text(16),
        eval_dataset=Text(4),
        callbacks=list(callbacks),
    )


def steps_of(read: Read) -> list[RankStep]:
    return [one for one in read() if isinstance(one, RankStep)]


def test_every_step_is_what_the_trainer_itself_logs(decoder: LlamaForCausalLM, read: Read) -> None:
    made = trainer(decoder, MntrainCallback(), max_steps=5, include_num_input_tokens_seen="all")
    made.train()
    start = next(one for one in read() if isinstance(one, RankStart))
    end = read()[-1]
    assert (start.device, start.total_steps, start.saves) == ("cpu", 5, True)
    assert start.parameters == decoder.num_parameters()
    flops = stage_flops_per_token(model_shape(decoder.config), LENGTH, layers=2, has_head=True)
    assert start.flops_per_token == flops
    assert start.peak_flops_per_s
    assert start.peak_source is not None
    assert start.peak_source.startswith("measured GEMM, float32")
    assert isinstance(end, RankEnd)
    assert end.ok

    steps = steps_of(read)
    logged = [line for line in made.state.log_history if "loss" in line]
    assert [step.step for step in steps] == [line["step"] for line in logged] == [1, 2, 3, 4, 5]
    assert [step.loss for step in steps] == [line["loss"] for line in logged]
    assert [step.grad_norm for step in steps] == [line["grad_norm"] for line in logged]
    assert [step.learning_rate for step in steps] == [line["learning_rate"] for line in logged]
    assert [step.tokens for step in steps] == [2 * LENGTH] * 5
    assert sum(step.tokens or 0 for step in steps) == made.state.num_input_tokens_seen
    assert [step.flops for step in steps] == [2 * LENGTH * flops] * 5
    assert all(step.step_s > 0 and step.memory_bytes for step in steps)


def test_micro_batches_are_one_step_with_all_their_tokens(
    decoder: LlamaForCausalLM, read: Read
) -> None:
    made = trainer(
        decoder,
        MntrainCallback(),
        max_steps=3,
        gradient_accumulation_steps=4,
        logging_steps=2,
    )
    made.train()
    steps = steps_of(read)
    logged = {line["step"]: line["loss"] for line in made.state.log_history if "loss" in line}
    assert [step.tokens for step in steps] == [4 * 2 * LENGTH] * 3
    assert [step.loss for step in steps] == [None, logged[2], None]


@pytest.mark.parametrize(
    ("strategy", "at"),
    [({"eval_strategy": "steps", "eval_steps": 3}, [3, 6, 8]), ({"eval_strategy": "epoch"}, [8])],
)
def test_an_evaluation_belongs_to_the_step_before_it(
    decoder: LlamaForCausalLM, read: Read, strategy: dict[str, Any], at: list[int]
) -> None:
    made = trainer(decoder, MntrainCallback(), num_train_epochs=1, **strategy)
    made.train()
    made.evaluate()
    steps = steps_of(read)
    logged = {
        line["step"]: line["eval_loss"] for line in made.state.log_history if "eval_loss" in line
    }
    evaluated = {one.step: one.loss for one in evaluations(read)}
    assert [step.step for step in steps] == list(range(1, 9))
    assert list(evaluated) == at
    assert evaluated == {step: logged[step] for step in at}
    assert [step.tokens for step in steps] == [2 * LENGTH] * 8  # none of an evaluation


def test_a_wish_to_save_saves_once_and_goes_on(
    decoder: LlamaForCausalLM, job: Path, read: Read
) -> None:
    wisher = Wisher(job, 2, Controls(saves=("now",)))
    trainer(decoder, MntrainCallback(), wisher, max_steps=4).train()
    saved = [one.step for one in read() if isinstance(one, RankSaved)]
    assert saved == [2]
    assert [path.name for path in Path("out").glob("checkpoint-*")] == ["checkpoint-2"]
    assert len(steps_of(read)) == 4


def test_a_wish_to_stop_saves_and_stops(decoder: LlamaForCausalLM, job: Path, read: Read) -> None:
    wisher = Wisher(job, 3, Controls(saves=("last",), is_stop=True))
    made = trainer(decoder, MntrainCallback(), wisher, max_steps=100)
    made.train()
    assert made.state.global_step == 3
    assert [type(one) for one in read()][-3:] == [RankStep, RankSaved, RankEnd]
    assert (Path("out") / "checkpoint-3" / "model.safetensors").exists()


def test_outside_of_a_job_nothing_happens(
    decoder: LlamaForCausalLM, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(METRICS_VARIABLE)
    trainer(decoder, MntrainCallback(), max_steps=2).train()
    assert list(job.iterdir()) == []
    assert not decoder._forward_pre_hooks
