"""Settings of jobs as the page shows them."""

from __future__ import annotations

from jupyter_mntrain.metrics.ranking import Ranking
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.setting import Origin


class ShownSetting(Record, frozen=True):
    """A setting as displayed: its value, and where it was set."""

    name: str
    value: str
    origin: Origin


class JobSettings(Record, frozen=True):
    """All settings of a job: those of its recipe, then those of its launch."""

    settings: tuple[ShownSetting, ...]


class DifferingSetting(Record, frozen=True):
    """A setting that differs between the compared jobs; ``None`` = a job does not have it."""

    name: str
    values: tuple[ShownSetting | None, ...]


class JobComparison(Record, frozen=True):
    """Which settings of jobs differ, which are the same, and which job is fastest."""

    differing: tuple[DifferingSetting, ...]
    same: tuple[str, ...]
    ranking: Ranking
