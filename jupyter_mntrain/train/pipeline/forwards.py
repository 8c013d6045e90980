"""Forward-only runs: compute the held-out loss and next tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from jupyter_mntrain.recipe.layout import Layout
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally, unwatched
from jupyter_mntrain.train.data.batches import Batch
from jupyter_mntrain.train.model.decoder import StageModule
from jupyter_mntrain.train.model.losses import Loss
from jupyter_mntrain.train.model.stages import make_stages
from jupyter_mntrain.train.pipeline.runtime import NO_OUTPUTS, make_forward_only
from jupyter_mntrain.train.world import Groups


@dataclass
class Forwards:
    """Runs a rank's stages forward only, whatever the schedule, and leaves gradients untouched.

    It wraps the same modules in its own torch stages, separate from those that train.

    Args:
        groups: the ranks of this pipeline, and of its replicas.
        modules: this rank's stages by index.
        renew: called before each computation: frees gathered weights that may be stale.
        loss: sums over the tokens of a microbatch.
    """

    recipe: Recipe
    config: Any
    layout: Layout
    groups: Groups
    modules: Mapping[int, StageModule]
    renew: Callable[[], None]
    loss: Loss
    _evaluator: Any = None
    _sampler: Any = None

    def evaluate(self, batch: Batch, progress: ProgressWriter = unwatched) -> torch.Tensor:
        """Sum the loss over a batch: this pipeline's share on its last stage's rank, else zero.

        A float64 scalar on the device, which may still be computing it.

        Collective; every rank passes the same batch.

        Args:
            batch: any number of sequences.
            progress: receives the progress.
        """
        count, size = self.recipe.microbatches, self.recipe.microbatch_size
        grid, each = self.groups.grid, count * size
        # The same number of rounds on every rank: gathering sharded weights is collective.
        rounds = -(-len(batch) // (each * grid.width))
        batch = batch.share(grid.part_of(self.groups.rank), grid.width)
        tally = Tally(progress, "evaluating", len(batch), "sequences")
        if self._evaluator is None:
            shape = (size, self.recipe.data.sequence_length)
            self._evaluator = self._runtime(shape, count, self.loss)
        total = torch.zeros((), dtype=torch.float64, device=self.groups.pipeline.device)
        with self._not_training():
            for part in batch.parts(each, at_least=rounds):
                filled = part.filled(each).to(self.groups.pipeline.device)
                losses = run(self._evaluator.eval, self.modules, filled)
                for loss in losses:
                    total += loss
                tally.add(len(part))
        tally.end()
        return total

    def likeliest(self, ids: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """Return the likeliest next token of each text on every rank: (b,), on the CPU.

        Collective; every rank passes the same texts, always of the same shape.

        Args:
            ids: (b, T); anything may follow a text.
            last: (b,), index of each text's last token.
        """
        device = self.groups.pipeline.device
        ids, last = ids.to(device), last.to(device)
        if self._sampler is None:
            self._sampler = self._runtime((ids.shape[0], ids.shape[1]), 1, self._choose)
        place = torch.arange(ids.shape[1], device=device).expand_as(ids)
        # What follows a text is none of it: some models rotate by the length of a text.
        after = place - last.unsqueeze(1) - 1
        positions = torch.where(after < 0, place, after)
        texts = Batch(ids, last, positions, len(last))
        with self._not_training(), _as_written(self.recipe):
            chosen = run(self._sampler.eval, self.modules, texts)
        found = chosen[0] if chosen else torch.empty_like(last)
        source = self.groups.pipeline.in_job(self.layout.last_rank)
        dist.broadcast(found, source, group=self.groups.pipeline.group)
        if self.groups.shards is not None:
            # On unlike devices a near tie may fall otherwise, and all gather weights as often.
            dist.broadcast(found, group=self.groups.shards, group_src=0)
        return found.cpu()

    def _choose(self, output: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """Pick the likeliest ids, (b,), from the last stage's output, (b, T, d) or (b, T, V)."""
        module = self.modules[self.layout.last_stage]
        here = output[torch.arange(len(last), device=last.device), last]
        logits = module.project(here) if module.leaves_head else here
        return logits.float().argmax(-1)

    def _runtime(self, shape: tuple[int, int], microbatches: int, loss: Loss) -> Any:
        """Make a forward-only schedule; ``shape`` is (sequences, length) of a microbatch."""
        stages = make_stages(
            self.recipe,
            self.config,
            self.layout,
            self.groups,
            self.modules,
            shape,
            trains=False,
        )
        return make_forward_only(
            stages,
            [self.layout.stages_of(rank) for rank in range(self.groups.pipeline.size)],
            microbatches,
            loss,
        )

    @contextmanager
    def _not_training(self) -> Iterator[None]:
        self.renew()
        for module in self.modules.values():
            module.eval()
        with torch.no_grad():
            yield
        for module in self.modules.values():
            module.train()


def run(
    schedule: Callable[..., Any], modules: Mapping[int, StageModule], batch: Batch
) -> list[torch.Tensor]:
    """Call one of torch's schedules with this rank's arguments.

    Args:
        batch: its labels go to the loss; any shape whose first dimension is sequences.

    Returns:
        The loss of each microbatch on the rank of the last stage; empty elsewhere.
    """
    has_last = any(module.last for module in modules.values())
    losses: list[torch.Tensor] | None = [] if has_last else None
    schedule(
        *((batch.inputs,) if any(module.first for module in modules.values()) else ()),
        target=batch.labels if has_last else None,
        losses=losses,
        # Needed on every rank: without positions gradients are silently wrong (measured).
        position_ids=batch.positions,
        **({} if batch.ends is None else {"document_ends": batch.ends, "longest": batch.longest}),
        **NO_OUTPUTS,
    )
    return losses or []


def _as_written(recipe: Recipe) -> AbstractContextManager[None]:
    """Run uncompiled: a second shape would make torch recompile layers for dynamic shapes."""
    return torch.compiler.set_stance("force_eager") if recipe.compiles else nullcontext()
