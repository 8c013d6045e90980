"""Job output: the data, picture and text of a job that a notebook keeps, all of one moment.

The kernel shows it while a job runs; the Jupyter server makes it when a page saves its notebook.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_mntrain.metrics.page_entries import JobBundle, JobEntry
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.metrics.summary import JobSummary
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.show.bundles import (
    PROGRAM,
    Bundle,
    job_bundle,
    picture_metadata,
    plain_text,
)
from jupyter_mntrain.show.tables.job import status_view

if TYPE_CHECKING:
    from jupyter_mntrain.show.picture import Picture

# How long the last picture waits, after a job's end, for samples of unreachable nodes.
LAST_SAMPLES_S = 5.0
"""How long a view of an ended job waits for its last samples."""

ALL_POINTS = 1500
"""Rows of all ranks in a saved notebook: about 150 kB for 8 ranks."""
LEAST_POINTS = 30
"""Fewest and most rows per rank in a saved notebook, whatever the number of ranks."""
ALTERNATIVE_LINES = 3
MOST_POINTS = 500


def saved_points(ranks: int) -> int:
    """Return how many rows per table a notebook keeps: the more ranks, the fewer rows."""
    return max(LEAST_POINTS, min(MOST_POINTS, ALL_POINTS // max(1, ranks)))


def written_note(view: JobView, now_s: float) -> str:
    """Return when the output was written: it may be read elsewhere, and days later."""
    at = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now_s))
    return f"Written {at}." if view.state in TERMINAL else f"As of {at}."


def saved_bundle(cluster: str, entry: JobEntry, series: JobSeries, now_s: float) -> JobBundle:
    """Return the data of a job for a notebook, without a forecast and without training data.

    Nobody knows what became of the job when it is read, and notebooks are shared.

    Args:
        series: downsampled to :func:`saved_points`.
    """
    kept = msgspec.structs.replace(series, summary=without_forecast(series.summary), data=None)
    return JobBundle(
        cluster=cluster,
        job=msgspec.structs.replace(entry, numbers=without_forecast(entry.numbers)),
        series=kept,
        saved_s=now_s,
    )


def without_forecast(numbers: Any) -> Any:
    """Return a job's figures or summary without the time left."""
    return msgspec.structs.replace(numbers, remaining_s=None)


def _alternative(text: str) -> str:
    """Describe a job's picture in one line: its state and headline figures."""
    lines = (" ".join(line.split()) for line in text.splitlines()[:ALTERNATIVE_LINES])
    return f"Charts of {'; '.join(filter(None, lines))}"


class JobOutput:
    """Outputs of one job, without a forecast of its end. Not thread-safe.

    A notebook may be saved at any moment, and nobody knows then what became of the job.
    """

    def __init__(self) -> None:
        self._picture: Picture | None = None

    def make(
        self,
        saved: JobBundle,
        summary: JobSummary,
        drawn: JobSeries | None,
        view: JobView,
        *,
        now_s: float,
        note: str,
    ) -> tuple[Bundle, dict[str, Any]]:
        """Return the output and its metadata.

        Args:
            summary: for the text.
            drawn: with more rows than are saved; ``None`` = no picture.
            note: below text and picture.
        """
        told = without_forecast(summary)
        text = plain_text(status_view(told, view, program=PROGRAM, now_s=now_s))
        png = None if drawn is None else self._draw(drawn, view, now_s, note)
        bundle = job_bundle(saved, f"{text}\n{note}", png)
        if png is None:
            return bundle, {}
        from jupyter_mntrain.show.picture import WIDTH_PX

        return bundle, picture_metadata(WIDTH_PX, _alternative(text))

    def _draw(self, series: JobSeries, view: JobView, now_s: float, note: str) -> bytes:
        if self._picture is None:
            # matplotlib takes half a second: in this thread, not when the module is loaded.
            from jupyter_mntrain.show.picture import Picture

            self._picture = Picture(program=PROGRAM)
        return self._picture.draw(series, view, now_s=now_s, note=note)
