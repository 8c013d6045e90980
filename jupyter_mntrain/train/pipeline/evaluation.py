"""Evaluation: the loss on held-out text, and samples of what the model writes."""

from __future__ import annotations

from collections.abc import Callable
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
        return step % interval == 0 or step == self.recipe.train.steps

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
