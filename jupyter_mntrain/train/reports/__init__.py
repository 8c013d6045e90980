"""Reports: passes training metrics to TensorBoard, W&B, Trackio and Prometheus.

Only rank 0 reports: all ranks have the same loss and norm. Imports none of those libraries before
a run starts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from jupyter_mntrain.model.environment import RUN_VARIABLE
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.sections import Recipe, ReportKind
from jupyter_mntrain.train.reports.background import (
    BEGIN_S,
    CLOSE_S,
    FAILED_CLOSE_S,
    Background,
)
from jupyter_mntrain.train.reports.base import Reporter, Run
from jupyter_mntrain.train.reports.prometheus import Prometheus
from jupyter_mntrain.train.reports.tensorboard import FOLDER, TensorBoard
from jupyter_mntrain.train.reports.trackio import Trackio
from jupyter_mntrain.train.reports.wandb import WandB
from jupyter_mntrain.train.world import World, agree

__all__ = ["Reports", "open_reports", "refuse_missing"]

_LIBRARIES: dict[ReportKind, str] = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "trackio": "trackio",
    "prometheus": "prometheus_client",
}

_REPORTERS: dict[ReportKind, Callable[[Run], Reporter]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "trackio": Trackio,
    "prometheus": Prometheus,
}

_Has = Callable[[str], bool]


class Reports:
    """Sends the same numbers to every report. On exit, waits until they have written them."""

    def __init__(self, reports: Sequence[Background] = ()) -> None:
        self._reports = tuple(reports)
        self._tokens: float | None = None

    def step(
        self,
        step: int,
        sample: Mapping[str, Any],
        *,
        tokens: int,
        tokens_per_s: float,
    ) -> None:
        """Report one optimizer step, counted from 1, from the sample that the loop recorded.

        Steps differ in their tokens where sequences are padded. Those of earlier attempts are not
        known here: they count like the first one.

        Args:
            tokens: of all pipelines.
            tokens_per_s: of the recent steps, over wall time.
        """
        if not self._reports:
            return
        if self._tokens is None:
            self._tokens = (step - 1) * float(tokens)
        self._tokens += tokens
        values = {
            "train/loss": sample["loss"],
            "train/learning_rate": sample["learning_rate"],
            "train/grad_norm": sample["grad_norm"],
            "train/tokens_per_s": tokens_per_s,
            "train/step_s": sample["step_s"],
            "train/tokens": self._tokens,
        }
        self._log(step, values)

    def evaluated(self, step: int, loss: float) -> None:
        """Report the loss on held-out text after ``step`` steps."""
        self._log(step, {"evaluation/loss": loss})

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        for report in self._reports:
            report.log(step, values)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        until = time.monotonic() + (CLOSE_S if error is None else FAILED_CLOSE_S)
        for report in self._reports:
            report.stop()
        for report in self._reports:
            report.join(max(0.0, until - time.monotonic()))


def is_installed(library: str) -> bool:
    """Whether a library is installed; a ``wandb`` folder with W&B's runs does not count."""
    spec = find_spec(library)
    return spec is not None and spec.origin is not None


def refuse_missing(recipe: Recipe, world: World, has: _Has = is_installed) -> None:
    """Check that rank 0 has the libraries that the recipe's reports need. Collective.

    Raises:
        RecipeError: one is not installed.
    """
    if recipe.report.to is None:
        return
    libraries = [_LIBRARIES[kind] for kind in recipe.report.to]
    missing = [one for one in libraries if not has(one)] if world.is_head else []
    error = None
    if missing:
        packages = " ".join(one.replace("_", "-") for one in missing)
        error = RecipeError(
            f"report.to = {list(recipe.report.to)}: {missing[0]} is not installed",
            fix=f"pip install {packages}, or remove it from report.to",
        )
    agree(world, error)


def open_reports(
    recipe: Recipe,
    world: World,
    *,
    directory: Path | None,
    first_step: int,
    say: Callable[[str], None],
    has: _Has = is_installed,
    environment: Mapping[str, str] = os.environ,
) -> Reports:
    """Start this rank's reports; return once all have started or after :data:`BEGIN_S`.

    Args:
        directory: this run's checkpoint directory, if any.
        first_step: steps finished by earlier attempts.
        say: prints a line to the job's log.
    """
    if not world.is_head:
        return Reports()
    run = Run(recipe, environment.get(RUN_VARIABLE), directory, first_step)
    kinds = _kinds(recipe, directory, say, has)
    reports = [Background(kind, partial(_REPORTERS[kind], run), say) for kind in kinds]
    until = time.monotonic() + BEGIN_S
    for report in reports:
        report.wait(max(0.0, until - time.monotonic()))
    return Reports(reports)


def _kinds(
    recipe: Recipe, directory: Path | None, say: Callable[[str], None], has: _Has
) -> list[ReportKind]:
    asked = recipe.report.to
    if asked is None:
        if directory is None:
            return []
        if not has("tensorboard"):
            say(f"report: for curves in {directory / FOLDER}, pip install tensorboard")
            return []
        return ["tensorboard"]
    kinds = list(dict.fromkeys(asked))
    if directory is None and "tensorboard" in kinds:
        say("report: no tensorboard: this run has no checkpoint.directory for its files")
        kinds.remove("tensorboard")
    return kinds
