"""Job events: what happened to a job and when, for the lane above the charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jupyter_mntrain.metrics.downsampled.samples import UNKNOWN
from jupyter_mntrain.metrics.summary import EventKind, JobEvent
from jupyter_mntrain.model.failure.kinds import SLOWNESS, Kind
from jupyter_mntrain.model.lifecycle.running_changes import changes_of_attempt
from jupyter_mntrain.model.records.checkpoint import SavedStep
from jupyter_mntrain.model.records.job import TERMINAL, Episode, JobView

TRAFFIC_SHARE = 0.1
"""Other traffic on a link is reported if it takes at least this share of the capacity ..."""
TRAFFIC_S = 5.0
"""... for at least this long."""
MOST_TRAFFIC = 50
"""Number of newest periods of other traffic that are kept per node."""


def events_of(view: JobView, traffic: Sequence[JobEvent]) -> tuple[JobEvent, ...]:
    """Return everything that happened to the newest attempt, oldest first."""
    found = [*_turns(view), *_saves(view), *_changes(view), *_warnings(view), *traffic]
    return tuple(sorted(found, key=lambda one: one.time_s))


def _turns(view: JobView) -> Iterator[JobEvent]:
    """Yield the start and the end of the attempt."""
    started = [part.started_s for part in view.parts if part.started_s is not None]
    if started:
        again = "restarted" if view.attempt.number > 1 else "started"
        kind = again if view.resumed_step is None else "resumed"
        yield JobEvent(kind=kind, time_s=min(started), step=view.resumed_step)  # type: ignore[arg-type]
    if view.state not in TERMINAL:
        return
    if view.problem is not None and view.problem.time_s is not None:
        yield JobEvent(kind="failed", time_s=view.problem.time_s, problem=view.problem)
    elif ended := [part.ended_s for part in view.parts if part.ended_s is not None]:
        yield JobEvent(kind="ended", time_s=max(ended))


def _saves(view: JobView) -> Iterator[JobEvent]:
    """Yield complete and failed checkpoints, each once, by the node that reported it first.

    If the newest one failed, it is a warning of the job and not repeated here.
    """
    first: dict[tuple[int, bool], SavedStep] = {}
    for part in view.parts:
        for save in part.saved:
            key = (save.step, save.problem is None)
            first[key] = min(save, first.get(key, save), key=lambda one: one.time_s)
    warned = {(one.kind, one.step) for one in view.warnings}
    for one in first.values():
        if one.problem is None:
            yield JobEvent(kind="saved", time_s=one.time_s, step=one.step)
        elif (one.problem.kind, one.problem.step) not in warned:
            label = one.problem.kind.replace("-", " ")
            yield JobEvent(
                kind="warning", time_s=one.time_s, step=one.step, label=label, problem=one.problem
            )


def _changes(view: JobView) -> Iterator[JobEvent]:
    """Yield the settings that were changed while the attempt ran."""
    for one in changes_of_attempt(view.parts):
        if one.refused is None:
            label = f"{one}, by {one.by}" if one.by else str(one)
            yield JobEvent(kind="changed", time_s=one.time_s, step=one.step, label=label)


def _warnings(view: JobView) -> Iterator[JobEvent]:
    """Yield stalls, slowdowns and other warnings."""
    for episode in view.episodes:
        if episode.problem.time_s is not None:
            yield JobEvent(
                kind=_kind_of(episode),
                time_s=episode.problem.time_s,
                end_s=episode.end_s,
                node=episode.problem.node,
                label=episode.label,
                problem=episode.problem,
            )
    is_noted = any(one.is_stall and one.end_s is None for one in view.episodes)
    if view.stall is not None and view.stall.time_s is not None and not is_noted:
        yield JobEvent(kind="stalled", time_s=view.stall.time_s, problem=view.stall)
    for one in view.warnings:
        if one.time_s is not None and one.kind not in SLOWNESS:
            label = one.kind.replace("-", " ")
            yield JobEvent(kind="warning", time_s=one.time_s, label=label, problem=one)


def _kind_of(episode: Episode) -> EventKind:
    if episode.is_stall:
        return "stalled"
    if not episode.is_slowdown:
        return "warning"
    return "link-slow" if episode.problem.kind is Kind.LINK_SLOW else "slow"


class OtherTraffic:
    """Finds when other programs used a node's link.

    Args:
        node: whose link.
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self._over: list[JobEvent] = []
        self._begin_s: float | None = None
        self._last_s = 0.0
        self._most = 0.0

    @property
    def events(self) -> list[JobEvent]:
        """Periods of at least :data:`TRAFFIC_S`, oldest first; the last may not be over."""
        return [*self._over, *self._open(None)]

    def see(self, rows: Mapping[str, Sequence[float]], capacity: float | None) -> None:
        """Take new rows of the link.

        Args:
            capacity: bytes per second in one direction; without one nothing is found.
        """
        if not capacity:
            return
        names = ("time_s", "sent", "own_sent", "received", "own_received")
        for time_s, *rates in zip(*(rows[name] for name in names), strict=True):
            pairs = (rates[:2], rates[2:])
            others = [all_ - own for all_, own in pairs if UNKNOWN not in (all_, own)]
            self._take(time_s, max(others, default=0.0) / capacity)

    def _take(self, time_s: float, share: float) -> None:
        if share >= TRAFFIC_SHARE:
            if self._begin_s is None:
                self._begin_s, self._most = time_s, 0.0
            self._last_s, self._most = time_s, max(self._most, share)
        elif self._begin_s is not None and time_s - self._last_s >= TRAFFIC_S:
            self._over = [*self._over, *self._open(self._last_s)][-MOST_TRAFFIC:]
            self._begin_s = None

    def _open(self, end_s: float | None) -> Iterator[JobEvent]:
        """Yield the current period, if it is long enough to report."""
        if self._begin_s is not None and self._last_s - self._begin_s >= TRAFFIC_S:
            yield JobEvent(
                kind="traffic",
                time_s=self._begin_s,
                end_s=end_s,
                node=self.node,
                share=round(self._most, 3),
            )
