"""Evaluation: the loss on held-out text, and samples of what the model writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch.distributed as dist

from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train.data.batches import Batch
from jupyter_mntrain.train.finite import FiniteCheck
from jupyter_mntrain.train.pipeline.forwards import Forwards
from jupyter_mntrain.train.pipeline.sampling import TextSampler
from jupyter_mntrain.train.world import World


@dataclass
class Evaluation:
    """Evaluates between steps, as the recipe says. Collective.

    Args:
        held_out: sequences to evaluate on; ``None`` if the recipe has no evaluations.
        finite: is told this rank's part of the loss.
        say: prints a line to the job's log.

    Attributes:
        losses: finished steps → mean held-out loss per token.
        samples: finished steps → the model's continuation of each prompt.
    """

    recipe: Recipe
    world: World
    recorder: Recorder
    forwards: Forwards
    sampler: TextSampler
    held_out: Batch | None
    finite: FiniteCheck
    say: Callable[[str], None]
    losses: dict[int, float] = field(default_factory=dict)
    samples: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def is_due(self, step: int) -> bool:
        """Whether to evaluate after ``step`` finished steps."""
        if self.held_out is None:
            return False
        interval = self.recipe.evaluation.interval_steps
        return step % interval == 0 or step == self.recipe.steps

    @property
    def is_over(self) -> bool:
        """Whether the held-out loss has not improved for too long. The same on all ranks, as they
        all have the same sums.
        """
        most = self.recipe.evaluation.stop_after
        return bool(most) and evaluations_since_best(self.losses) >= most

    def measure(self, step: int) -> float:
        """Return the mean held-out loss per token after ``step`` steps, and record it."""
        assert self.held_out is not None  # noqa: S101
        total = self.forwards.evaluate(self.held_out, self.recorder.progress)
        self.finite.note(total.clone())
        dist.all_reduce(total)
        loss = self.losses[step] = total.item() / max(1, self.held_out.counted)
        self.recorder.evaluated(step, loss)
        if self.world.is_head:
            count = len(self.held_out)
            self.say(f"evaluation after step {step}: loss {loss:.4f} on {count} sequences")
            if self.is_over:
                best = best_step(self.losses)
                self.say(f"evaluation: no better than after step {best}: the run ends here")
        return loss

    def write_samples(self, step: int) -> None:
        """Let the model continue the recipe's prompts, if there are any."""
        if not self.sampler.prompts:
            return
        self.samples[step] = self.sampler.write(self.recorder.progress)
        if not self.world.is_head:
            return
        for prompt, text in zip(self.sampler.prompts, self.samples[step], strict=True):
            self.recorder.wrote(step, prompt.text, text)
            self.say(f"sample after step {step}: {prompt.text!r} → {text!r}")


def best_step(losses: Mapping[int, float]) -> int:
    """The first step with the lowest loss; one that is NaN is never the lowest."""
    ranked = {step: math.inf if math.isnan(loss) else loss for step, loss in losses.items()}
    return min(sorted(ranked), key=ranked.__getitem__)


def evaluations_since_best(losses: Mapping[int, float]) -> int:
    """How many evaluations in a row, up to the last, were no better than the best before them."""
    if not losses:
        return 0
    best = best_step(losses)
    return sum(step > best for step in losses)
