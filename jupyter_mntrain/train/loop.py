"""Training loop, top to bottom."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.not_finite import Measure
from jupyter_mntrain.recipe.memory import memory_estimate
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.formulas import stage_flops_per_token
from jupyter_mntrain.telemetry.gemm import device_name, device_peak
from jupyter_mntrain.telemetry.memory import MemoryGauge
from jupyter_mntrain.telemetry.progress import Tally
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train.checkpoint.export import DESCRIPTION, ModelExport, describe
from jupyter_mntrain.train.checkpoint.policy import Checkpointing
from jupyter_mntrain.train.data.batches import Batch
from jupyter_mntrain.train.finite import FiniteCheck, chosen
from jupyter_mntrain.train.model.decoder import model_shape
from jupyter_mntrain.train.model.stages import DTYPES
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from jupyter_mntrain.train.pipeline.pipeline import Pipeline
from jupyter_mntrain.train.pipeline.sampling import TextSampler, ends_of
from jupyter_mntrain.train.pipeline.stopwatch import StageMeter, Stopwatch
from jupyter_mntrain.train.prepare import WAITING, Prepared, prepare
from jupyter_mntrain.train.reports import Reports, open_reports, refuse_missing
from jupyter_mntrain.train.world import World, form_groups, join_world, topology

STEADY_AFTER = 2
"""Steps after which times are steady: the first also allocates, compiles and connects."""


class TrainResult(Record, frozen=True):
    """Result of a run; losses and norms are the same on every rank."""

    rank: int
    world_size: int
    tokens_per_step: int
    losses: tuple[float, ...]
    """Mean cross-entropy per token in nats, before each step's update."""
    gradient_norms: tuple[float, ...]
    """Norm of the whole model's gradient before clipping, per step."""
    step_s: tuple[float, ...]
    evaluations: dict[int, float]
    """Finished steps → mean cross-entropy per token of the held-out text."""
    samples: dict[int, tuple[str, ...]] = {}
    """Finished steps → the model's continuation of each prompt."""


def train(recipe: Recipe) -> TrainResult:
    """Train as the recipe says, alone or as one of torchrun's ranks.

    Metrics go to ``$MNTRAIN_METRICS_DIR`` if it is set.

    Raises:
        RecipeError: the recipe does not fit the data, the model or the ranks.
        NotFiniteError: the loss or the gradient became NaN or infinite.
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
        recorder: receives one sample per step.
    """

    def __init__(self, recipe: Recipe, world: World, recorder: Recorder) -> None:
        torch.manual_seed(recipe.train.seed)
        self.recipe = recipe
        self.world = world
        self.recorder = recorder
        self.memory = MemoryGauge(world.device)
        self.finite = FiniteCheck(world, chosen(recipe, os.environ), _say)
        refuse_missing(recipe, world)

        # Data and model. Ranks compare hashes of them.
        ready = prepare(recipe, world, recorder.progress)
        self.batches, self.held_out = ready.batches, ready.held_out

        # The pipeline, with a meter attached.
        self.stopwatch = Stopwatch(world.device)
        self.meter = StageMeter(self.stopwatch)
        groups = form_groups(world, ready.grid, recipe.train.timeout_s, recorder.progress)
        self.pipeline = Pipeline(
            recipe, ready.config, ready.layout, groups, ready.modules, self.meter
        )
        self.pipeline.measure()
        self.sampler = TextSampler(
            recipe,
            self.pipeline.forwards,
            ready.prompts,
            ready.tokens,
            ends_of(ready.config.eos_token_id, ready.tokens),
        )
        self.samples: dict[int, tuple[str, ...]] = {}
        self.optimizer = Optimizer(recipe, self.pipeline.parameters(), self.pipeline.counted_once())

        # Check the output directory now, not at the end.
        self.output = ModelExport(recipe, world, ready.config, ready.tokens, say=_say)
        self.output.refuse()

        # Resume from the newest checkpoint of an earlier attempt, if any.
        self.checkpoints = Checkpointing(
            recipe,
            world,
            recorder,
            digests=ready.digests,
            grid=ready.grid,
            model=self.pipeline,
            say=_say,
        )
        self.first_step = self.checkpoints.resume(self.optimizer)
        if self.checkpoints.directory is not None and world.local_rank == 0:
            described = self.checkpoints.directory / DESCRIPTION
            describe(recipe, ready.config, ready.tokens, described)

        self.flops_per_token = _flops_per_token(ready, ready.grid.place_of(world.rank))
        self._introduce(ready)

    def run(self) -> TrainResult:
        with open_reports(
            self.recipe,
            self.world,
            directory=self.checkpoints.directory,
            first_step=self.first_step,
            say=_say,
        ) as reports:
            return self._run(reports)

    def _run(self, reports: Reports) -> TrainResult:
        losses: list[float] = []
        norms: list[float] = []
        times: list[float] = []
        evaluations: dict[int, float] = {}
        if self.held_out is not None:
            loss = evaluations[self.first_step] = self.evaluate(self.first_step, self.held_out)
            # An earlier attempt has reported this evaluation already if it was due then.
            if not (self.first_step and self._is_to_evaluate(self.first_step)):
                reports.evaluated(self.first_step, loss)
        last = time.perf_counter()
        for step in range(self.first_step, self.recipe.train.steps):
            learning_rate = self.optimizer.learning_rate
            sample = self.step(step)

            now = time.perf_counter()
            times.append(now - last)
            last = now
            losses.append(sample["loss"])
            norms.append(sample["grad_norm"])

            self.recorder.step(
                step=step + 1, step_s=times[-1], learning_rate=learning_rate, **sample
            )
            reports.step(step + 1, sample, learning_rate=learning_rate, step_s=times[-1])
            self._log(step + 1, sample, learning_rate, times)
            self._refuse_nan("loss", step + 1, sample)
            if self.held_out is not None and self._is_to_evaluate(step + 1):
                loss = evaluations[step + 1] = self.evaluate(step + 1, self.held_out)
                reports.evaluated(step + 1, loss)
                last = time.perf_counter()
            if len(times) == STEADY_AFTER:
                self._send_ahead(sample["compute_s"])
                last = time.perf_counter()
            if self.checkpoints.after(step + 1, self.optimizer):
                break
        self.checkpoints.close()
        steps_done = self.first_step + len(times)
        self.output.write(self.pipeline.written_once(), steps_done, self.recorder.progress)
        return TrainResult(
            rank=self.world.rank,
            world_size=self.world.size,
            tokens_per_step=self.recipe.tokens_per_step,
            losses=tuple(losses),
            gradient_norms=tuple(norms),
            step_s=tuple(times),
            evaluations=evaluations,
            samples=self.samples,
        )

    def step(self, step: int) -> dict[str, Any]:
        """Run one optimizer step, counted from 0; return its sample's fields."""
        self.meter.reset()
        mark, seconds = self.stopwatch.mark, self.stopwatch.seconds
        batch = self.batches.batch(step)

        begin = mark()
        loss = self.pipeline.forward_backward(batch)
        self.pipeline.share_gradients()
        passed = mark()
        squares = self.optimizer.gradient_squares()
        squared = mark()
        self.finite.note(loss, squares.sum())
        loss, norm, votes = self.optimizer.total(loss, squares, self.checkpoints.votes())
        agreed = mark()
        self.optimizer.update(norm)
        end = mark()

        self.stopwatch.wait(end)
        self.checkpoints.count(votes.tolist())
        compute_s = self.meter.compute_s()
        return {
            "tokens": batch.tokens,
            "loss": loss.item(),
            "grad_norm": norm.item(),
            "compute_s": compute_s,
            "wait_s": max(0.0, seconds(begin, passed) - compute_s) + seconds(squared, agreed),
            "optimizer_s": seconds(passed, squared) + seconds(agreed, end),
            "flops": self.flops_per_token * batch.tokens / self.recipe.data_parallel.width,
            "sent_bytes": dict(self.meter.sent_bytes),
            "received_bytes": dict(self.meter.received_bytes),
            "memory_bytes": self.memory.bytes(),
        }

    def _refuse_nan(self, what: Measure, step: int, sums: dict[str, Any]) -> None:
        """End on all ranks if a sum over them is not finite, before the weights are saved.

        The update of this step has been made already: waiting for the sums before it would let
        a GPU idle in every step.
        """
        if self.finite.is_bad(sums["loss"], sums["grad_norm"]):
            self.checkpoints.close()  # that of an earlier step is good
            raise self.finite.error(what, step, sums, self.checkpoints.saved_step)

    def _send_ahead(self, compute_s: float) -> None:
        said = self.pipeline.send_ahead(compute_s)
        if said and self.world.is_head:
            _say(said)

    def evaluate(self, step: int, held_out: Batch) -> float:
        """Return the mean held-out loss per token after ``step`` steps. Collective."""
        total = torch.tensor(self.pipeline.forwards.evaluate(held_out, self.recorder.progress))
        self.finite.note(total)
        total = total.double().to(self.world.device)
        dist.all_reduce(total)
        loss = total.item() / max(1, held_out.counted)
        self.recorder.evaluated(step, loss)
        if self.world.is_head:
            _say(f"evaluation after step {step}: loss {loss:.4f} on {len(held_out)} sequences")
        self._refuse_nan("evaluation-loss", step, {"loss": loss, "grad_norm": 0.0})
        if self.sampler.prompts:
            self._write_samples(step)
        return loss

    def _write_samples(self, step: int) -> None:
        self.samples[step] = self.sampler.write(self.recorder.progress)
        if not self.world.is_head:
            return
        for prompt, text in zip(self.sampler.prompts, self.samples[step], strict=True):
            self.recorder.wrote(step, prompt.text, text)
            _say(f"sample after step {step}: {prompt.text!r} → {text!r}")

    def _is_to_evaluate(self, step: int) -> bool:
        interval = self.recipe.evaluation.interval_steps
        return step % interval == 0 or step == self.recipe.train.steps

    def _introduce(self, ready: Prepared) -> None:
        rank, layout = self.world.rank, ready.layout
        place = ready.grid.place_of(rank)
        if rank == 0:
            _say(topology(ready.reports))
            if ready.grid.width > 1:
                _say(f"data parallel: {ready.grid}")
                if note := ready.grid.spread_replicas([report.host for report in ready.reports]):
                    _say(str(note))
            _say(f"data: {ready.corpus.description}, sha256 {ready.corpus.digest[:12]}")
        dist.barrier()  # ranks measure their peak at the same time, as they will train
        if self.pipeline.note and rank == 0:
            _say(f"pipeline: {self.pipeline.note}")
        dtype = DTYPES[self.recipe.model.dtype]
        peak = device_peak(self.world.device, dtype, self.recorder.progress)
        parameters = sum(p.numel() for p in self.pipeline.parameters().values())
        layers, stages = layout.layers_of(place), layout.stages_of(place)
        _say(
            f"rank {rank} host={self.world.host} pid={os.getpid()} device={self.world.device} "
            f"stages={list(stages)} layers={list(layers)} parameters={parameters:,}"
        )
        self._say_memory(ready.config)
        self.recorder.start(
            device=device_name(self.world.device),
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
            saves=self.checkpoints.directory is not None,
            resumed_step=self.first_step or None,
            neighbors=self.pipeline.neighbors(),
        )

    def _say_memory(self, config: Any) -> None:
        shapes = self.pipeline.stage_shapes()
        estimate = memory_estimate(model_shape(config), self.recipe, shapes)
        _say(f"rank {self.world.rank} memory: {estimate}")
        if self.recipe.memory.offload_activations and self.world.device.type == "cpu":
            _say(f"rank {self.world.rank} memory: nothing to offload on a CPU")

    def _log(
        self, step: int, sample: dict[str, Any], learning_rate: float, times: list[float]
    ) -> None:
        steps, interval = self.recipe.train.steps, self.recipe.train.log_interval
        if self.world.rank != 0 or (step % interval and step not in {1, steps}):
            return
        recent = times[-interval:]
        rate = sample["tokens"] * len(recent) / sum(recent)
        span = "1 step" if len(recent) == 1 else f"{len(recent)} steps"
        _say(
            f"step {step}/{steps} loss {sample['loss']:.4f} grad norm {sample['grad_norm']:.3f} "
            f"lr {learning_rate:.2e} {rate:,.0f} tok/s over {span}"
        )


def _flops_per_token(ready: Prepared, rank: int) -> float:
    return stage_flops_per_token(
        model_shape(ready.config),
        ready.seen_tokens,
        layers=len(ready.layout.layers_of(rank)),
        has_head=rank == ready.layout.last_rank,
    )


def _say(line: str) -> None:
    # A sample may contain characters that the log's encoding lacks; that must not end training.
    encoding = sys.stdout.encoding or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)  # noqa: T201 - the job's log is this process's output
