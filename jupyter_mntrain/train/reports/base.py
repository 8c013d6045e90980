"""Reporter: the contract of every report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import tomli_w

from jupyter_mntrain.recipe.sections import Recipe

PROJECT = "mntrain"
"""Where the recipe names no other."""

NUMBERS = {
    "train/loss": "Mean cross-entropy per token in nats, before the step's update",
    "train/learning_rate": "Learning rate of the step",
    "train/grad_norm": "Norm of the whole model's gradient, before clipping",
    "train/tokens_per_s": "Tokens per second of the job",
    "train/step_s": "Seconds the step took",
    "train/tokens": "Tokens seen so far",
    "evaluation/loss": "Mean cross-entropy per token of held-out text",
}
"""Name of each number, and what it is."""


class Reporter(Protocol):
    """Keeps numbers somewhere. Called from one thread of its own; may raise whatever it likes."""

    def begin(self) -> None:
        """Get ready; before anything else, and may take a while."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take numbers by the names of :data:`NUMBERS`; steps never fall."""

    def close(self) -> None:
        """Keep what is not kept yet; after everything else."""


@dataclass(frozen=True)
class Run:
    """What is reported on.

    Args:
        job: its id; ``None`` outside of a job.
        directory: of its checkpoints, if it has one.
        first_step: steps that were done before this attempt.
    """

    recipe: Recipe
    job: str | None
    directory: Path | None
    first_step: int

    @property
    def project(self) -> str:
        return self.recipe.report.project or PROJECT

    @property
    def name(self) -> str | None:
        return self.recipe.report.run_name or self.job

    @property
    def sections(self) -> dict[str, dict[str, Any]]:
        """The whole recipe, defaults too, without what was left out."""
        return {
            section: {
                field: list(value) if isinstance(value, tuple) else value
                for field, value in msgspec.structs.asdict(fields).items()
                if value is not None
            }
            for section, fields in msgspec.structs.asdict(self.recipe).items()
        }

    @property
    def hyperparameters(self) -> dict[str, str | float | bool]:
        """The same, flat: ``section.field`` → value."""
        return {
            f"{section}.{field}": value if isinstance(value, str | float | int) else str(value)
            for section, fields in self.sections.items()
            for field, value in fields.items()
        }

    @property
    def toml(self) -> str:
        return tomli_w.dumps(self.sections)
