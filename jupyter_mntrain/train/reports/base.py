"""Reporter: the contract of every report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import tomli_w

from jupyter_mntrain.metrics.definitions import meaning_of
from jupyter_mntrain.recipe.sections import REPORT_PROJECT, Recipe

NUMBERS = {
    "train/loss": "Mean cross-entropy per token in nats, before the step's update",
    "train/learning_rate": "Learning rate of the step",
    "train/grad_norm": "Norm of the whole model's gradient, before clipping",
    "train/tokens_per_s": meaning_of("tokens_per_s"),
    "train/step_s": "Seconds the step took, without evaluations, samples and saves before it",
    "train/tokens": "Tokens seen so far",
    "evaluation/loss": "Mean cross-entropy per token of held-out text",
}
"""Descriptions of the reported numbers, by name."""


class Reporter(Protocol):
    """Writes numbers somewhere. Made in, and called from, a single thread of its own.

    May raise anything, and take a while to be made.
    """

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write values, keyed as in :data:`NUMBERS`; ``step`` never decreases."""

    def close(self) -> None:
        """Flush and close. Called last."""


@dataclass(frozen=True)
class Run:
    """The run that is reported.

    Args:
        job: its id; ``None`` outside of a job.
        directory: its checkpoint directory, if any.
        first_step: steps finished by earlier attempts.
    """

    recipe: Recipe
    job: str | None
    directory: Path | None
    first_step: int

    @property
    def project(self) -> str:
        return self.recipe.report.project or REPORT_PROJECT

    @property
    def name(self) -> str | None:
        return self.recipe.report.run_name or self.job

    @property
    def sections(self) -> dict[str, dict[str, Any]]:
        """The recipe with its defaults, without unset fields."""
        return {
            section: {
                field: msgspec.to_builtins(value)
                for field, value in msgspec.structs.asdict(fields).items()
                if value is not None
            }
            for section, fields in msgspec.structs.asdict(self.recipe).items()
        }

    @property
    def hyperparameters(self) -> dict[str, str | float | bool]:
        """The recipe as ``section.field`` → value."""
        return {
            f"{section}.{field}": value if isinstance(value, str | float | int) else str(value)
            for section, fields in self.sections.items()
            for field, value in fields.items()
        }

    @property
    def toml(self) -> str:
        return tomli_w.dumps(self.sections)
