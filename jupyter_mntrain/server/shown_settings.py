"""Settings of jobs as the page shows them."""

from __future__ import annotations

from jupyter_mntrain.metrics.ranking import Ranking
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.setting import Origin


class ShownSetting(Record, frozen=True):
    """A setting as shown: its value, and where that came from."""

    name: str
    value: str
    origin: Origin


class JobSettings(Record, frozen=True):
    """All settings of a job: those of its recipe, then those of its launch."""

    settings: tuple[ShownSetting, ...]


class DifferingSetting(Record, frozen=True):
    """A setting that is not the same in all compared jobs; ``None`` = a job that has none."""

    name: str
    values: tuple[ShownSetting | None, ...]


class JobComparison(Record, frozen=True):
    """What differs between the settings of jobs, the names of the others, and who is fastest."""

    differing: tuple[DifferingSetting, ...]
    same: tuple[str, ...]
    ranking: Ranking
