"""Trackio reporter: logs to a local Trackio project."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_mntrain.train.reports.base import Run


class Trackio:
    """Logs one run per job; later attempts of the job continue it."""

    def __init__(self, run: Run) -> None:
        import trackio

        self._theirs: Any = trackio.init(
            project=run.project,
            name=run.name,
            config=run.hyperparameters,
            resume="allow" if run.job else "never",
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._theirs.log(dict(values), step=step)

    def close(self) -> None:
        self._theirs.finish()
