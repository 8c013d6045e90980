"""Meetings: replicas that train apart average what they have learned, every so many steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from jupyter_mntrain.recipe.devices.memory_estimate import shown_bytes
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally
from jupyter_mntrain.train.model.stages import DTYPES
from jupyter_mntrain.train.optimizer.averaging import average
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from jupyter_mntrain.train.optimizer.outer import outer_buckets
from jupyter_mntrain.train.pipeline.pipeline import Pipeline
from jupyter_mntrain.train.pipeline.stopwatch import StageMeter
from jupyter_mntrain.train.world import Groups

MEETING = "averaging the replicas"

MOMENTUM = "outer/momentum/"
"""Before the name of a parameter, in a checkpoint."""


class Meetings:
    """Meetings of one rank with those that hold the same weights in other replicas.

    Without ``data_parallel.sync_every`` there are none, and nothing is held.

    Args:
        optimizer: holds what a replica has learned.
        meter: counts the bytes.
        progress: receives the progress of each meeting: over a slow network it takes minutes.
    """

    def __init__(
        self,
        recipe: Recipe,
        groups: Groups,
        pipeline: Pipeline,
        optimizer: Optimizer,
        meter: StageMeter,
        progress: ProgressWriter,
    ) -> None:
        self.recipe = recipe
        self._section = recipe.data_parallel
        self._groups = groups
        self._pipeline = pipeline
        self._optimizer = optimizer
        self._meter = meter
        self._progress = progress
        kept = optimizer.kept() if self.are_rare else {}
        self._buckets = outer_buckets(self._section, kept)
        self._last = torch.zeros((), dtype=torch.int64)
        """Steps at the last meeting; a tensor, as a checkpoint has it."""
        self.are_held = True
        """Else each replica trains alone to the end, as where a step is only tried."""

    @property
    def are_rare(self) -> bool:
        """Whether replicas train apart between meetings."""
        return self._section.meets_rarely and self._groups.replicas is not None

    def is_over(self, step: int) -> bool:
        """Whether replicas have the same weights after ``step`` steps."""
        return not self.are_rare or int(self._last) == step

    def after(self, step: int) -> None:
        """Meet if it is time to, after ``step`` finished steps. Collective.

        That is after the last step, too: what is written then holds what all have learned.
        """
        if step % max(1, self._section.sync_every) == 0 or step == self.recipe.steps:
            self.conclude(step)

    def conclude(self, step: int) -> None:
        """Meet if that has not been done after this step. Collective."""
        if self.are_held and not self.is_over(step):
            self._meet()
            self._last.fill_(step)

    def begin_at(self, step: int) -> None:
        """Take the weights that all replicas have after ``step`` steps for those of a meeting."""
        if self.are_rare:
            self._buckets = outer_buckets(self._section, self._optimizer.kept())
            self._last.fill_(step)

    def state(self) -> dict[str, torch.Tensor]:
        """What all replicas have in common, by its names in a checkpoint: ``model/NAME`` in the
        dtype of the model, as everybody reads it who wants one, and with less than float32 beside
        it what that was rounded from. Views, but for what is rounded.
        """
        weights = self._weights()
        dtype = DTYPES[self.recipe.dtype]
        found = {f"model/{name}": one.to(dtype) for name, one in weights.items()}
        if dtype != torch.float32:
            found |= {f"outer/weights/{name}": one for name, one in weights.items()}
        for bucket in self._buckets:
            found |= {f"{MOMENTUM}{name}": one for name, one in bucket.momentum().items()}
        return found | {"outer/step": self._last}

    def __str__(self) -> str:
        """What the log says of them behind the replicas; empty if there are none."""
        if not self.are_rare:
            return ""
        section = self._section
        values = sum(one.numel() for one in self._weights().values())
        size = shown_bytes(round(values * section.sent_bytes))
        return (
            f"; replicas meet every {section.sync_every} steps: {size} per rank in "
            f"{section.sync_dtype}; outer learning rate {section.outer_learning_rate:g}, "
            f"momentum {section.outer_momentum:g}"
        )

    def _weights(self) -> Mapping[str, torch.Tensor]:
        """Those of the last meeting."""
        return {
            name: one.detach() for bucket in self._buckets for name, one in bucket.weights.items()
        }

    @torch.no_grad()
    def _meet(self) -> None:
        group, kept, total = self._groups.replicas, self._optimizer.kept(), 0
        assert group is not None  # noqa: S101
        values = sum(one.numel() for one in kept.values())
        size = round(values * self._section.sent_bytes)
        tally = Tally(self._progress, MEETING, size, "B")
        for bucket in self._buckets:
            learned = bucket.learned(kept)
            mean, sent = average(learned, self._section.sync_dtype, group)
            bucket.step(mean)
            total += sent
            tally.add(round(learned.numel() * self._section.sent_bytes))
        tally.end()
        before, after = self._groups.grid.ring_of(self._groups.rank)
        self._meter.passed_on(total, sent_to=after, received_from=before)
        weights = self._weights()
        self._pipeline.even_out_tied(weights)
        for name, one in kept.items():
            one.copy_(weights[name])
        self._optimizer.renew()
