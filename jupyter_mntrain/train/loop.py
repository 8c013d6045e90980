"""Training, top to bottom."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import torch.distributed as dist

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.telemetry.formulas import stage_flops_per_token
from jupyter_mntrain.telemetry.progress import Tally
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train.checkpointing import Checkpointing
from jupyter_mntrain.train.decoder import model_shape
from jupyter_mntrain.train.gemm import device_peak
from jupyter_mntrain.train.layout import Layout
from jupyter_mntrain.train.memory import MemoryGauge
from jupyter_mntrain.train.optimiser import Optimiser
from jupyter_mntrain.train.pipeline import DTYPES, Pipeline
from jupyter_mntrain.train.prepare import WAITING, Prepared, prepare
from jupyter_mntrain.train.sections import Recipe
from jupyter_mntrain.train.stopwatch import StageMeter, Stopwatch
from jupyter_mntrain.train.world import World, join_world, topology


class TrainResult(Record, frozen=True):
    """What a run came to; losses and norms are the same on every rank."""

    rank: int
    world_size: int
    tokens_per_step: int
    losses: tuple[float, ...]
    """Mean cross-entropy per token in nats, before each step's update."""
    gradient_norms: tuple[float, ...]
    """Of the whole model, before clipping."""
    step_s: tuple[float, ...]


def train(recipe: Recipe) -> TrainResult:
    """Train as the recipe says, alone or as one of torchrun's ranks.

    Samples go to ``$MNTRAIN_METRICS_DIR`` where it is set.

    Raises:
        RecipeError: the recipe does not fit the data, the model or the ranks.
    """
    if threads := os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    with Recorder() as recorder:
        joining = Tally(recorder.progress, WAITING)
        with join_world(recipe.train.device, recipe.train.timeout_s) as world:
            joining.end()
            return Trainer(recipe, world, recorder).run()


class Trainer:
    """One rank's part of a run.

    Args:
        recipe: the same on every rank.
        world: this rank among the others.
        recorder: gets one sample per step.
    """

    def __init__(self, recipe: Recipe, world: World, recorder: Recorder) -> None:
        torch.manual_seed(recipe.train.seed)
        self.recipe = recipe
        self.world = world
        self.recorder = recorder
        self.memory = MemoryGauge(world.device)

        # Data and model, agreed with the other ranks: nothing has been sent but hashes.
        ready = prepare(recipe, world, recorder.progress)
        self.batches = ready.batches

        # The pipeline, measured from outside.
        self.stopwatch = Stopwatch(world.device)
        self.meter = StageMeter(self.stopwatch)
        self.pipeline = Pipeline(
            recipe, ready.config, ready.layout, world, ready.modules, self.meter
        )
        self.pipeline.measure()
        self.optimiser = Optimiser(recipe, self.pipeline.parameters(), self.pipeline.counted_once())

        # Where an earlier attempt of this job stood, or the beginning.
        self.checkpoints = Checkpointing(
            recipe, world, recorder, digests=ready.digests, model=self.pipeline, say=_say
        )
        self.first_step = self.checkpoints.resume(self.optimiser)

        # Say who we are before the first step.
        self.flops_per_token = _flops_per_token(recipe, ready.config, ready.layout, world.rank)
        self._introduce(ready)

    def run(self) -> TrainResult:
        losses: list[float] = []
        norms: list[float] = []
        times: list[float] = []
        last = time.perf_counter()
        for step in range(self.first_step, self.recipe.train.steps):
            learning_rate = self.optimiser.learning_rate
            sample = self.step(step)

            now = time.perf_counter()
            times.append(now - last)
            last = now
            losses.append(sample["loss"])
            norms.append(sample["grad_norm"])

            self.recorder.step(
                step=step + 1, step_s=times[-1], learning_rate=learning_rate, **sample
            )
            self._log(step + 1, sample, learning_rate, times)
            if self.checkpoints.after(step + 1, self.optimiser):
                break
        self.checkpoints.close()
        return TrainResult(
            rank=self.world.rank,
            world_size=self.world.size,
            tokens_per_step=self.recipe.tokens_per_step,
            losses=tuple(losses),
            gradient_norms=tuple(norms),
            step_s=tuple(times),
        )

    def step(self, step: int) -> dict[str, Any]:
        """One optimiser step, counted from 0; returns what there is to record of it."""
        self.meter.reset()
        mark, seconds = self.stopwatch.mark, self.stopwatch.seconds
        batch = self.batches.batch(step)

        begin = mark()
        loss = self.pipeline.forward_backward(batch)
        self.pipeline.share_tied_gradient()
        passed = mark()
        square = self.optimiser.gradient_square()
        squared = mark()
        loss, norm, votes = self.optimiser.total(loss, square, self.checkpoints.votes())
        agreed = mark()
        self.optimiser.update(norm)
        end = mark()

        self.stopwatch.wait(end)
        self.checkpoints.count(votes.tolist())
        compute_s = self.meter.compute_s()
        return {
            "tokens": self.recipe.tokens_per_step,
            "loss": loss.item(),
            "grad_norm": norm.item(),
            "compute_s": compute_s,
            "wait_s": max(0.0, seconds(begin, passed) - compute_s) + seconds(squared, agreed),
            "optimiser_s": seconds(passed, squared) + seconds(agreed, end),
            "flops": self.flops_per_token * self.recipe.tokens_per_step,
            "sent_bytes": dict(self.meter.sent_bytes),
            "received_bytes": dict(self.meter.received_bytes),
            "memory_bytes": self.memory.bytes(),
        }

    def _introduce(self, ready: Prepared) -> None:
        rank, layout = self.world.rank, ready.layout
        if rank == 0:
            _say(topology(ready.reports))
            _say(f"data: {ready.corpus.description}, sha256 {ready.corpus.digest[:12]}")
        dist.barrier()  # so that all ranks load the node at once, as they will in training
        dtype = DTYPES[self.recipe.model.dtype]
        peak = device_peak(self.world.device, dtype, self.recorder.progress)
        parameters = sum(p.numel() for p in self.pipeline.parameters().values())
        layers, stages = layout.layers_of(rank), layout.stages_of(rank)
        _say(
            f"rank {rank} host={self.world.host} pid={os.getpid()} device={self.world.device} "
            f"stages={list(stages)} layers={list(layers)} parameters={parameters:,}"
        )
        self.recorder.start(
            device=_device_name(self.world.device),
            peak_flops_per_s=peak.flops_per_s if peak else None,
            peak_source=peak.source if peak else None,
            stages=stages,
            layers=layers,
            parameters=parameters,
            flops_per_token=self.flops_per_token,
            tokens_per_step=self.recipe.tokens_per_step,
            total_steps=self.recipe.train.steps,
            schedule=self.recipe.pipeline.schedule,
            microbatches=self.recipe.pipeline.microbatches,
            saves=self.checkpoints.is_on,
            neighbours=layout.neighbours(rank, tied=ready.config.tie_word_embeddings),
        )

    def _log(
        self, step: int, sample: dict[str, Any], learning_rate: float, times: list[float]
    ) -> None:
        steps, interval = self.recipe.train.steps, self.recipe.train.log_interval
        if self.world.rank != 0 or (step % interval and step not in {1, steps}):
            return
        recent = times[-interval:]
        rate = self.recipe.tokens_per_step * len(recent) / sum(recent)
        _say(
            f"step {step}/{steps} loss {sample['loss']:.4f} grad norm {sample['grad_norm']:.3f} "
            f"lr {learning_rate:.2e} {rate:,.0f} tokens/s"
        )


def _flops_per_token(recipe: Recipe, config: Any, layout: Layout, rank: int) -> float:
    return stage_flops_per_token(
        model_shape(config),
        recipe.data.sequence_length,
        layers=len(layout.layers_of(rank)),
        has_head=rank == layout.last_rank,
    )


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the job's log is this process's output
