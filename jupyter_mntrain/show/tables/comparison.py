"""Comparison tables: figures of several jobs, and the settings in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from jupyter_mntrain.metrics.ranking import ALIKE, RankedJob, Ranking, whole_rate
from jupyter_mntrain.metrics.summary import JobSummary
from jupyter_mntrain.model.records.setting import DifferentSetting, Setting
from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables._plain import plain_table
from jupyter_mntrain.show.tables.job import headline
from jupyter_mntrain.show.tables.plans.plan import SURE, times
from jupyter_mntrain.show.tables.ranks.rank_table import state_text
from jupyter_mntrain.show.tables.settings import setting_words

NO_SETTING = "–"

JOB_WIDTH: Final = len("✓ succeeded")
"""Columns of the terminal that a job takes at least."""

LONGEST_NAME: Final = 40
"""Columns; longer names are cut."""

_GAP: Final = 3


class BesideEachOther:
    """A table with a column per job, headed by its id.

    Jobs that do not fit side by side follow below. A name is cut where it does not fit; other cells
    fold.

    Args:
        jobs: ids.
        rows: label, and one cell per job.
    """

    def __init__(
        self, corner: str, jobs: Sequence[str], rows: Sequence[tuple[str, Sequence[Text]]]
    ) -> None:
        self._corner = corner
        self._jobs = jobs
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        labels = max(len(label) for label in (self._corner, *(label for label, _ in self._rows)))
        most = max(1, (options.max_width - labels) // (JOB_WIDTH + _GAP))
        for first in range(0, len(self._jobs), most):
            if first:
                yield ""
            part = slice(first, first + most)
            table = plain_table(self._corner, *self._jobs[part])
            table.columns[0].no_wrap = True
            for label, cells in self._rows:
                table.add_row(label, *cells[part])
            yield table


def figure_table(jobs: Sequence[JobSummary]) -> RenderableType:
    """Return one row per figure, as ``status`` has them, and one column per job."""
    labels = list(dict.fromkeys(label for job in jobs for label, *_ in headline(job)))
    figures = [{label: _figure(value, bad) for label, value, bad in headline(job)} for job in jobs]
    absent = Text(formats.ABSENT)
    rows = [
        ("name", [_name(job) for job in jobs]),
        ("state", [state_text(job.state) for job in jobs]),
        ("step", [Text(formats.count(job.step)) for job in jobs]),
        *((label, [found.get(label, absent) for found in figures]) for label in labels),
        ("tok/s, all", [Text(formats.rate(whole_rate(job))) for job in jobs]),
        ("ran", [Text(formats.duration(job.elapsed_s)) for job in jobs]),
    ]
    return BesideEachOther("job", [job.job_id for job in jobs], rows)


def ranking_line(ranking: Ranking) -> Text:
    """Say which job is the fastest, and by which figure; or why that is not known."""
    if ranking.refused is not None:
        return Text(f"Not ranked by {ranking.figure}: {ranking.refused}.", "yellow")
    first, *others = ranking.jobs
    if all(one.times <= 1 + ALIKE for one in others):
        return Text(f"By {ranking.figure} they are alike, within {formats.percent(ALIKE, 0)}.")
    if all(one.low <= 1 for one in others):
        return Text(f"By {ranking.figure} they cannot be ranked: their step times vary too much.")
    told = ", ".join(f"{_times(one)} as fast as {one.job_id}" for one in others)
    return Text(f"By {ranking.figure} {first.job_id} is the fastest: {told}.")


def _times(one: RankedJob) -> str:
    """Return a factor, with its range if that is wide."""
    if one.high <= SURE * one.low:
        return times(one.times)
    return f"{formats.fixed(one.low, 1)} to {formats.fixed(one.high, 1)}{formats.SPACE}×"


def difference_table(settings: Sequence[DifferentSetting], jobs: Sequence[str]) -> RenderableType:
    """Return one row per setting and one column per job; of three or more, the odd one is bold."""
    if not settings:
        return Text("All settings are the same.")
    rows = []
    for one in settings:
        words = [NO_SETTING if value is None else _words(value) for value in one.values]
        cells = [Text(word, "bold" if _is_odd(words, i) else "") for i, word in enumerate(words)]
        rows.append((one.name, cells))
    return BesideEachOther("setting", jobs, rows)


def same_line(names: Sequence[str]) -> Text:
    """Say how many settings are the same."""
    return Text(f"{len(names)} other settings are the same" if names else "", "dim")


def _words(value: Setting) -> str:
    return shown_line(setting_words(value))


def _name(job: JobSummary) -> Text:
    text = Text(shown_line(job.name), no_wrap=True, overflow="ellipsis")
    text.truncate(LONGEST_NAME, overflow="ellipsis")
    return text


def _figure(value: str, is_bad: bool) -> Text:
    return Text(value, "bold red" if is_bad else "")


def _is_odd(words: Sequence[str], place: int) -> bool:
    others = [word for i, word in enumerate(words) if i != place]
    return len(others) > 1 and len(set(others)) == 1 and words[place] != others[0]
