"""Comparison tables: figures of several jobs, and the settings that differ between them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from jupyter_mntrain.metrics.summary import JobSummary
from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.recipe.comparison import DifferentSetting
from jupyter_mntrain.recipe.settings import Setting
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables._plain import plain_table
from jupyter_mntrain.show.tables.job import headline, state_text
from jupyter_mntrain.show.tables.settings import setting_words

NO_SETTING = "–"


def figure_table(jobs: Sequence[JobSummary]) -> RenderableType:
    """One row per job, in the columns of ``status``."""
    labels = list(dict.fromkeys(label for job in jobs for label, *_ in headline(job)))
    numbers = ("step", *labels, "ran")
    table = plain_table("job", "name", "state", *numbers, right=numbers)
    for job in jobs:
        figures = {label: (value, is_bad) for label, value, is_bad in headline(job)}
        table.add_row(
            job.job_id,
            shown_line(job.name),
            state_text(job.state),
            formats.count(job.step),
            *(_figure(*figures.get(label, (formats.ABSENT, False))) for label in labels),
            formats.duration(job.elapsed_s),
        )
    return table


def difference_table(settings: Sequence[DifferentSetting], jobs: Sequence[str]) -> RenderableType:
    """One row per setting, one column per job; of three and more the odd one out is bold."""
    if not settings:
        return Text("All settings are the same.")
    table = plain_table("setting", *jobs)
    for one in settings:
        words = [NO_SETTING if value is None else _words(value) for value in one.values]
        table.add_row(
            one.name,
            *(Text(word, "bold" if _is_odd(words, i) else "") for i, word in enumerate(words)),
        )
    return table


def same_line(names: Sequence[str]) -> Text:
    """How many settings are the same."""
    return Text(f"{len(names)} other settings are the same" if names else "", "dim")


def _words(value: Setting) -> str:
    return shown_line(setting_words(value))


def _figure(value: str, is_bad: bool) -> Text:
    return Text(value, "bold red" if is_bad else "")


def _is_odd(words: Sequence[str], place: int) -> bool:
    others = [word for i, word in enumerate(words) if i != place]
    return len(others) > 1 and len(set(others)) == 1 and words[place] != others[0]
