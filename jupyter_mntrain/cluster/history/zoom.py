"""Zoom: reads a range of a job's steps at the finest resolution that its nodes have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.metrics.history import HistoryBuilder
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.metrics.series_builder import SeriesBuilder
from jupyter_mntrain.metrics.summary import JobSummary
from jupyter_mntrain.model.errors import MntrainError, bad_argument
from jupyter_mntrain.model.records.job import JobView, Placement

Axis = Literal["step", "time"]
AXES: tuple[Axis, ...] = ("step", "time")


async def read_zoom(
    view: JobView,
    client: Callable[[Placement], AgentClient],
    *,
    begin: int,
    end: int,
    points: int,
    by: Axis,
) -> HistoryBuilder:
    """Ask every participant for a range of steps.

    Raises:
        SpecError: there is no such axis, the range ends before it begins, or has no points.
        MntrainError: no node answered; of those that did not, there are no rows.
    """
    if by not in AXES:
        raise bad_argument("by", by, f"one of {', '.join(AXES)}")
    if begin > end:
        raise bad_argument("end", end, f"one that is not before begin, {begin}")
    if points < 1:
        raise bad_argument("points", points, "1 or more")
    builder = HistoryBuilder()

    async def read(placement: Placement) -> MntrainError | None:
        try:
            samples = await client(placement).samples(
                view.job_id, points=points, begin=begin, end=end, by=by
            )
        except MntrainError as error:
            return error
        builder.load(placement.node_id, placement.node, samples)
        return None

    errors = await asyncio.gather(*map(read, view.attempt.placements))
    if errors and all(errors) and errors[0] is not None:
        raise errors[0]
    return builder


def zoomed(
    builder: HistoryBuilder, view: JobView, summary: JobSummary, points: int, now_s: float
) -> JobSeries:
    """Return the rows of a zoom, with the summary of the whole job."""
    made = SeriesBuilder(view.job_id, "zoom")
    made.extend(builder.snapshot(view, is_complete=False), now_s)
    series = made.whole(points)
    # Of an interface's counters, a range of steps tells nothing.
    counted = {link.node for link in summary.links if link.basis == "interface"}
    links = tuple(one for one in series.links if one.node not in counted)
    return msgspec.structs.replace(series, links=links, summary=summary)
