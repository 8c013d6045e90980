"""Scripts of other libraries on two nodes, data-parallel: each rank's samples reach the driver."""

from __future__ import annotations

import pytest

from jupyter_mntrain.cluster import Job
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.model.records.metrics import RankStep
from tests.own_scripts.conftest import JOB_S, Launch
from tests.waiting import until

pytestmark = pytest.mark.slow

TINY = """
import os, time
import torch
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
decoder = LlamaForCausalLM(LlamaConfig(
    vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2,
))
# While the driver looks, other tests run.
decoder.register_forward_pre_hook(lambda *_: time.sleep(0.05))
ids = torch.randint(0, 64, (4096, 8), generator=torch.Generator().manual_seed(1))
"""

TRAINER = (
    TINY
    + """
from transformers import Trainer, TrainingArguments
from jupyter_mntrain import MntrainCallback

trainer = Trainer(
    decoder,
    TrainingArguments(
        output_dir="out", per_device_train_batch_size=2, logging_steps=1,
        save_strategy="no", report_to=[], disable_tqdm=True, max_steps=100_000,
        dataloader_pin_memory=False,
    ),
    train_dataset=[{"input_ids": one, "labels": one} for one in ids],
    callbacks=[MntrainCallback()],
)
trainer.train()
print("ended", trainer.state.global_step, flush=True)
"""
)

LIGHTNING = (
    TINY
    + """
from lightning.pytorch import LightningModule, Trainer
from jupyter_mntrain import MntrainLightningCallback

class Writer(LightningModule):
    def __init__(self):
        super().__init__()
        self.decoder = decoder
    def training_step(self, ids, index):
        return self.decoder(input_ids=ids, labels=ids).loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

trainer = Trainer(
    accelerator="cpu", strategy="ddp", devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["NNODES"]), max_epochs=100_000, logger=False,
    enable_checkpointing=False, enable_progress_bar=False,
    callbacks=[MntrainLightningCallback()],
)
trainer.fit(Writer(), DataLoader(ids, batch_size=2))
print("ended", trainer.global_step, flush=True)
"""
)

ACCELERATE = (
    TINY
    + """
from accelerate import Accelerator
from jupyter_mntrain import MntrainTracker

accelerator = Accelerator()
tracker = MntrainTracker(decoder)
optimizer = torch.optim.SGD(decoder.parameters(), lr=0.1)
model, optimizer, batches = accelerator.prepare(decoder, optimizer, DataLoader(ids, batch_size=2))
step, is_over = 0, False
while not is_over:
    for batch in batches:
        step += 1
        loss = model(input_ids=batch, labels=batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        tracker.log({"loss": loss, "lr": 0.1}, step=step)
        wish = tracker.wish()
        if wish.save:
            accelerator.save_state("saved")
            tracker.saved()
        is_over = wish.stop
        if is_over:
            break
print("ended", step, flush=True)
tracker.finish()
accelerator.end_training()
"""
)

LIBRARIES = ("transformers", "lightning", "accelerate")

RANKS = (Rank(0), Rank(1))


def steps_of(job: Job, rank: Rank) -> list[RankStep]:
    known = job.history().ranks.get(rank)
    return list(known.steps) if known else []


@pytest.mark.parametrize("script", [TRAINER, LIGHTNING, ACCELERATE], ids=LIBRARIES)
def test_every_rank_shows_its_steps_saves_and_stops_when_asked(launch: Launch, script: str) -> None:
    job = launch(script, ("node1:1", "node2:1"))

    def has_begun() -> bool:
        return all(len(steps_of(job, rank)) >= 5 for rank in RANKS) or job.state in TERMINAL

    until(has_begun, "five steps", JOB_S)
    assert job.state == "running", job.logs()
    before = job.view()
    job.save()
    saved = job.wait_for_save(before, 60)
    assert saved is not None
    assert saved.problem is None
    job.save(is_last=True)
    view = job.wait(JOB_S)
    assert view.state == "canceled", job.logs()
    assert view.warnings == (), "its ranks met, and its losses are sound"
    sizes = [rank.group_size for part in view.parts for rank in part.ranks]
    assert sizes == [2, 2]

    job.wait_for_history(30)
    history = job.history()
    lines = {line.rank: line.text for line in job.logs() if line.text.startswith("ended")}
    last = {history.ranks[rank].steps[-1].step for rank in RANKS}
    assert len(last) == 1, "both ranks ended after the same step"
    assert set(lines.values()) == {f"ended {last.pop()}"}
    for rank in RANKS:
        known = history.ranks[rank]
        assert known.start is not None
        assert (known.start.rank, known.start.world_size, known.start.saves) == (rank, 2, True)
        assert known.start.flops_per_token
        assert known.start.peak_flops_per_s
        assert known.end is not None
        assert known.end.ok
        assert [one.step for one in known.steps] == list(range(1, len(known.steps) + 1))
        assert {one.tokens for one in known.steps} == {16}
        assert all(one.loss is not None and one.learning_rate for one in known.steps)
    summary = job.summary()
    assert summary.mfu is not None
    assert 0 < summary.mfu < 1
    assert summary.tokens_per_s
    assert (summary.saved_step or 0) > saved.step
