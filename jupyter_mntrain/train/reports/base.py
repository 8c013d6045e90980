"""The interface of all reporters."""

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
    "train/loss": meaning_of("loss"),
    "train/learning_rate": meaning_of("learning_rate"),
    "train/grad_norm": meaning_of("grad_norm"),
    "train/tokens_per_s": meaning_of("tokens_per_s"),
    "train/step_s": "seconds that this step alone took, without the time before it",
    "train/tokens": "tokens of all steps so far, of all replicas, without padding",
    "evaluation/loss": meaning_of("evaluation_loss"),
}
"""Descriptions of the reported numbers, by name."""


class Reporter(Protocol):
    """Writes numbers somewhere. It is created in, and called from, one thread of its own.

    May raise anything, and take a while to be made.
    """

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write values, keyed as in :data:`NUMBERS`; ``step`` never decreases."""

    def close(self) -> None:
        """Flush and close. Called last."""


@dataclass(frozen=True)
class Run:
    """A run to report.

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
