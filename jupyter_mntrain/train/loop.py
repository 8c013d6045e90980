"""The training loop, top to bottom."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, ClassVar

import torch
import torch.distributed as dist

from jupyter_mntrain.model.failure.not_finite import Measure
from jupyter_mntrain.model.records.checkpoint import RunFigures
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.callbacks.device_number import DeviceNumber
from jupyter_mntrain.telemetry.device.gemm import device_name, device_peak
from jupyter_mntrain.telemetry.memory import MemoryGauge
from jupyter_mntrain.telemetry.progress import Tally
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train.checkpoint.export import DESCRIPTION, ModelExport, describe
from jupyter_mntrain.train.checkpoint.places import directory_of
from jupyter_mntrain.train.checkpoint.result import TrainResult
from jupyter_mntrain.train.checkpoint.resuming import begin_checksums
from jupyter_mntrain.train.checkpoint.saving import Checkpointing
from jupyter_mntrain.train.choosing import resolve_automatic
from jupyter_mntrain.train.finite import FiniteCheck, chosen
from jupyter_mntrain.train.model.held_memory import check_memory, refuse_full_host
from jupyter_mntrain.train.model.stages import DTYPES
from jupyter_mntrain.train.optimizer.diloco import OuterSyncs
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from jupyter_mntrain.train.optimizer.spikes import Spikes
from jupyter_mntrain.train.pipeline.changing import SettingChanges
from jupyter_mntrain.train.pipeline.evaluation import Evaluation, TextSampler, ends_of
from jupyter_mntrain.train.pipeline.pipeline import Pipeline
from jupyter_mntrain.train.pipeline.steps import (
    QueuedStep,
    StepMarks,
    TokenCount,
    actions_of,
    is_traced,
    recipe_fields,
    say,
)
from jupyter_mntrain.train.pipeline.stopwatch import StageMeter, Stopwatch
from jupyter_mntrain.train.prepare import WAITING, Prepared, prepare
from jupyter_mntrain.train.reports import Reports, open_reports, refuse_missing
from jupyter_mntrain.train.world import World, debugging, form_groups, join_world

LEAST_PAUSE_S = 1e-3
"""Shortest pause between steps that counts; less is the loop itself."""

STEADY_AFTER = 2
"""Steps after which times are steady: the first also allocates, compiles and connects."""


def train(
    recipe: Recipe,
    chosen: Mapping[str, str] | None = None,
    *,
    made_by: Callable[[Recipe, World, Recorder], Trainer] | None = None,
) -> TrainResult:
    """Train as the recipe says, alone or as one of torchrun's ranks.

    Metrics go to ``$MNTRAIN_METRICS_DIR`` if it is set.

    Args:
        chosen: by a launch, in place of ``auto``; by default the ranks choose.
        made_by: makes another trainer than :class:`Trainer`.

    Raises:
        RecipeError: the recipe does not fit the data, the model or the ranks.
        NotFiniteError: the loss or the gradient became NaN or infinite.
    """
    if threads := os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    with Recorder() as recorder, debugging(recipe.train):
        joining = Tally(recorder.progress, WAITING)
        with join_world(recipe.train.device, recipe.train.timeout_s) as world:
            joining.end()
            resolved = resolve_automatic(recipe, world, chosen, say=say)
            return (made_by or Trainer)(resolved, world, recorder).run()


class Trainer:
    """One rank's part of a run.

    Args:
        recipe: the same on every rank.
        world: this rank among the others.
        recorder: receives one sample per step.
    """

    reads: ClassVar[bool] = True
    """Whether the data and the model's weights are read; else they are random."""

    def __init__(self, recipe: Recipe, world: World, recorder: Recorder) -> None:
        torch.manual_seed(recipe.train.seed)
        self.world = world
        self.recorder = recorder
        self.memory = MemoryGauge(world.device)
        self.finite = FiniteCheck(world, chosen(recipe, os.environ), say, recipe.model.path)
        refuse_missing(recipe, world)

        # A checkpoint is compared with its checksums while data and model are read.
        checksums = begin_checksums(world, directory_of(recipe, os.environ))

        # Data and model. Ranks compare hashes of them.
        ready = prepare(recipe, world, recorder.progress, reads=self.reads)
        self.recipe = recipe = ready.recipe
        self.batches, self._summary = ready.batches, ready.data.summary
        self._grid = ready.grid

        # The pipeline, with a meter attached.
        self.stopwatch = Stopwatch(world.device)
        # To skip a step its numbers are read before the next one is queued, anyway.
        self.reads_late = world.device.type == "cuda" and not recipe.train.skip_spikes
        self._before = self.stopwatch.mark()
        self.meter = StageMeter(self.stopwatch)
        groups = form_groups(world, recipe, ready.grid, ready.layout, recorder.progress)
        self.pipeline = Pipeline(
            recipe, ready.config, ready.layout, groups, ready.modules, self.meter
        )
        self.pipeline.measure()
        self.evaluation = self._evaluation(ready)
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.times: list[float] = []
        self.count = TokenCount()
        own = (self.pipeline.parameters(), self.pipeline.counted_once())
        self.optimizer = Optimizer(recipe, *own, groups.replica, self.pipeline.split())
        refuse_full_host(recipe, ready.config, world, self.pipeline.stage_shapes())
        parts = (recipe, groups, self.pipeline, self.optimizer, self.meter)
        self.syncs = OuterSyncs(*parts, recorder.progress)

        self.output = ModelExport(recipe, world, ready.config, ready.tokens, say=say)
        self.output.refuse()  # now, not at the end

        # Resume from the newest checkpoint of an earlier attempt, if any.
        self.spikes = Spikes(recipe.train, say)
        run = (recipe, world, recorder, ready.digests, ready.grid, self.pipeline)
        learned = (self.syncs, self.spikes)
        self.checkpoints = Checkpointing(*run, *learned, self._figures, say)
        users = (self.optimizer, self.syncs, self.checkpoints, self.evaluation, self.output)
        self.changes = SettingChanges(world, recorder, (self, *users), say)
        self.first_step = self.checkpoints.resume(self.optimizer, checksums)
        if self.checkpoints.directory is not None and world.local_rank == 0:
            describe(recipe, ready.config, ready.tokens, self.checkpoints.directory / DESCRIPTION)
        self.flops_per_token = ready.flops_per_token(ready.grid.place_of(world.rank))
        self._introduce(ready)

    def _evaluation(self, ready: Prepared) -> Evaluation:
        recipe, world, forwards = self.recipe, self.world, self.pipeline.forwards
        ends = ends_of(ready.config.eos_token_id, ready.tokens)
        sampler = TextSampler(recipe, forwards, ready.prompts, ready.tokens, ends)
        held_out, finite = ready.held_out, self.finite
        return Evaluation(recipe, world, self.recorder, forwards, sampler, held_out, finite, say)

    def run(self) -> TrainResult:
        with open_reports(
            self.recipe,
            self.world,
            directory=self.checkpoints.directory,
            first_step=self.first_step,
            say=say,
        ) as reports:
            return self._run(reports)

    def _run(self, reports: Reports) -> TrainResult:
        if self.evaluation.held_out is not None and self.syncs.is_over(self.first_step):
            loss = self._evaluate(self.first_step)
            # An earlier attempt has reported this evaluation already if it was due then.
            if not (self.first_step and self.evaluation.is_due(self.first_step)):
                reports.evaluated(self.first_step, loss)
        self._leave_out()
        self.count.begin()
        held: QueuedStep | None = None
        steps_done = self.first_step
        while steps_done < self.recipe.steps:
            queued, steps_done = self._begin_after(held, steps_done, reports), steps_done + 1
            if held is not None:
                self._end(held, reports)
            held = queued
            if self._is_to_read(steps_done):
                sample, held = self._end(held, reports), None
                self.changes.take(steps_done)
                if self.evaluation.is_due(steps_done):
                    reports.evaluated(steps_done, self._evaluate(steps_done))
                if len(self.times) == STEADY_AFTER:
                    self._send_ahead(sample["compute_s"])
                    self._leave_out()
            evaluated, is_over = self.evaluation.losses.get(steps_done), self.evaluation.is_over
            if self._save(steps_done, evaluated, is_last=is_over):
                break
        self.checkpoints.close()
        self.syncs.end(steps_done, is_written=self.output.directory is not None)
        figures = self.checkpoints.figures_after(steps_done)
        self.output.write(self.pipeline.written_once(), figures, self.recorder.progress)
        self.checkpoints.finish_copies()
        return self._result()

    def _result(self) -> TrainResult:
        return TrainResult(
            rank=self.world.rank,
            world_size=self.world.size,
            tokens_per_step=self.recipe.tokens_per_step,
            losses=tuple(self.losses),
            gradient_norms=tuple(self.norms),
            step_s=tuple(self.times),
            tokens_per_s=self.count.per_s,
            evaluations=self.evaluation.losses,
            samples=self.evaluation.samples,
        )

    def _figures(self, step: int) -> RunFigures:
        return self._result().figures(step, self._summary)

    def _begin_after(self, held: QueuedStep | None, step: int, reports: Reports) -> QueuedStep:
        """Queue a step; if that fails, still report the previous step's numbers if they came."""
        try:
            return self.begin(step)
        except Exception:
            if held is not None and held.numbers.is_known:
                self._tell(held, reports)
            raise

    def begin(self, step: int) -> QueuedStep:
        """Queue one optimizer step, counted from 0, without waiting for the device."""
        self.meter.reset()
        mark, learning_rate = self.stopwatch.mark, self.optimizer.learning_rate
        batch = self.batches.batch(0 if self.recipe.train.overfit_batch else step)
        mine = self._grid.share_of(self.world.rank, batch.tokens)

        begin = mark()
        loss = self.pipeline.forward_backward(batch, step)
        self.pipeline.share_gradients()
        passed = mark()
        squares = self.optimizer.gradient_squares()
        squared = mark()
        own = (loss, squares.sum())
        wishes = (*self.checkpoints.votes(), self.changes.vote())
        loss, norm, votes = self.optimizer.total(loss, squares, wishes)
        agreed = mark()
        if self.spikes.applies(step + 1, loss, norm):
            self.optimizer.update(norm)
        else:
            self.optimizer.skip()
        updated = mark()
        self.syncs.after(step + 1)
        end = mark()

        marks = StepMarks(self._before, begin, passed, squared, agreed, updated, end)
        self._before = end
        return QueuedStep(
            number=step + 1,
            learning_rate=learning_rate,
            tokens=batch.tokens,
            own_tokens=mine,
            flops=self.flops_per_token * mine,
            numbers=DeviceNumber(torch.cat([torch.stack([loss, norm]), votes])),
            own=own,
            marks=marks,
            metered=self.meter.take(),
            memory=self.memory.fields(),
            spikes=self.spikes.fields,
        )

    def _is_to_read(self, step: int) -> bool:
        """Whether a step's numbers are needed before the next one is queued.

        On a GPU, only where something else follows: to evaluate, save, stop, take other settings or
        measure links. All ranks decide alike.
        """
        if not self.reads_late or self.checkpoints.is_due(step) or self.changes.is_wanted:
            return True
        return step - self.first_step == STEADY_AFTER or self.evaluation.is_due(step)

    def _end(self, step: QueuedStep, reports: Reports) -> dict[str, Any]:
        """Wait for a step, report its numbers, stop if they are not finite; return its sample."""
        sample = self._tell(step, reports)
        self.finite.note(*step.own)
        if not step.is_skipped:
            self._refuse_nan("loss", step.number, sample)
        elif self.spikes.is_over:
            self.checkpoints.close()
            raise self.spikes.error(step.number, self.checkpoints.saved_step)
        return sample

    def _tell(self, step: QueuedStep, reports: Reports) -> dict[str, Any]:
        sample, (*votes, change) = step.read(self.stopwatch)
        self.checkpoints.count(votes)
        self.changes.count(change)
        self.losses.append(sample["loss"])
        self.norms.append(sample["grad_norm"])
        self.times.append(sample["step_s"])
        age_s = self.stopwatch.age(step.marks.end)
        self.recorder.step(step=step.number, age_s=age_s, **sample)
        if is_traced(step.number - self.first_step):
            told = actions_of(step, self.stopwatch, self.recipe.microbatches)
            self.recorder.traced(step.number, sample["step_s"], told, age_s=age_s)
        self.count.add(step.tokens)
        rate = self.count.recent_per_s or 0.0
        reports.step(step.number, sample, tokens=step.tokens, tokens_per_s=rate)
        if self.world.rank == 0 and (line := self.count.log_line(self.recipe, step, sample)):
            say(line)
        return sample

    def _leave_out(self) -> None:
        """Exclude what was done since the last step from the next one's time."""
        self._before = self.stopwatch.mark()

    def _refuse_nan(self, what: Measure, step: int, sums: dict[str, Any]) -> None:
        """Stop all ranks if a sum is not finite, before the weights are saved.

        The update of this step has been made already, on a GPU also that of the next: waiting for
        the sums before it would let a GPU idle in every step.
        """
        if self.finite.is_bad(sums["loss"], sums["grad_norm"]):
            self.checkpoints.close()  # that of an earlier step is good
            raise self.finite.error(what, step, sums, self.checkpoints.saved_step)

    def _send_ahead(self, compute_s: float) -> None:
        said = self.pipeline.send_ahead(compute_s)
        if said and self.world.is_head:
            say(said)

    def _save(self, step: int, evaluated: float | None, *, is_last: bool) -> bool:
        """Save if it is due; return whether to stop. The time it takes belongs to no step."""
        begin_s = perf_counter()
        stops = self.checkpoints.after(step, self.optimizer, evaluated, is_last=is_last)
        if (took_s := perf_counter() - begin_s) >= LEAST_PAUSE_S:
            self.recorder.paused("saving", took_s)
            self._leave_out()
        return stops

    def _evaluate(self, step: int) -> float:
        with self.syncs.common(step):
            loss = self.evaluation.measure(step)
            self._refuse_nan("evaluation-loss", step, {"loss": loss, "grad_norm": 0.0})
            self.evaluation.write_samples(step)
        self._leave_out()
        return loss

    def _introduce(self, ready: Prepared) -> None:
        rank, layout = self.world.rank, ready.layout
        place = ready.grid.place_of(rank)
        if rank == 0:
            for line in ready.introduction(self.syncs):
                say(line)
        dist.barrier()  # ranks measure their peak at the same time, as they will train
        if self.pipeline.note and rank == 0:
            say(f"pipeline: {self.pipeline.note}")
        peak = device_peak(self.world.device, DTYPES[self.recipe.dtype], self.recorder.progress)
        parameters = self.pipeline.count_parameters()
        layers, stages = layout.layers_of(place), layout.stages_of(place)
        say(
            f"rank {rank} host={self.world.host} pid={os.getpid()} device={self.world.device} "
            f"stages={list(stages)} layers={list(layers)} parameters={parameters:,}"
        )
        shapes = self.pipeline.stage_shapes()
        for line in check_memory(self.recipe, ready.config, layout, place, self.world, shapes):
            say(line)
        self.recorder.start(
            device=device_name(self.world.device),
            peak_flops_per_s=peak.flops_per_s if peak else None,
            peak_source=peak.source if peak else None,
            stages=stages,
            layers=layers,
            parameters=parameters,
            flops_per_token=self.flops_per_token,
            **recipe_fields(self.recipe),
            data=ready.data if rank == 0 else None,
            counts_padding=False,
            saves=self.checkpoints.directory is not None,
            resumed_step=self.first_step or None,
            neighbors=self.pipeline.neighbors(),
        )
