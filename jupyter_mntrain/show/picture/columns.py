"""A job's history as columns of numbers. Grows with the history: old steps are read once."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import nan

import numpy as np
from numpy.typing import NDArray

from jupyter_mntrain.cluster import JobHistory, RankSeries
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import LinkSample, RankEvaluation, RankStep
from jupyter_mntrain.telemetry import formulas

Floats = NDArray[np.float64]


def _column() -> array[float]:
    return array("d")


@dataclass(slots=True)
class RankColumns:
    """One rank, a number per step; NaN where a step does not say."""

    steps: int = 0
    time_s: array[float] = field(default_factory=_column)
    step_s: array[float] = field(default_factory=_column)
    tokens: array[float] = field(default_factory=_column)
    pace: array[float] = field(default_factory=_column)
    mfu: array[float] = field(default_factory=_column)
    compute_share: array[float] = field(default_factory=_column)
    loss: array[float] = field(default_factory=_column)
    sent_bytes: array[float] = field(default_factory=_column)
    received_bytes: array[float] = field(default_factory=_column)

    def extend(self, series: RankSeries, own_node: range) -> None:
        """Take the steps not yet taken.

        Args:
            own_node: ranks on the same node: what goes between them crosses no link.
        """
        peak = series.start.peak_flops_per_s if series.start else None
        for step in series.steps[self.steps :]:
            self._take(step, peak, own_node)
        self.steps = len(series.steps)

    def _take(self, step: RankStep, peak: float | None, own_node: range) -> None:
        compute = step.compute_s
        tokens, flops = step.tokens, step.flops
        bubble = None if compute is None else formulas.measured_bubble(compute, step.step_s)
        self.time_s.append(step.time_s)
        self.step_s.append(step.step_s)
        self.tokens.append(_or_nan(tokens))
        self.pace.append(
            _or_nan(formulas.throughput(tokens, compute) if tokens and compute else None)
        )
        self.mfu.append(_or_nan(formulas.mfu(flops, step.step_s, peak)))
        self.compute_share.append(nan if bubble is None else 1.0 - bubble)
        self.loss.append(_or_nan(step.loss))
        self.sent_bytes.append(_across(step.sent_bytes, own_node))
        self.received_bytes.append(_across(step.received_bytes, own_node))


@dataclass(slots=True)
class LinkColumns:
    """The interface a node trains over: running totals of its counters."""

    samples: int = 0
    time_s: array[float] = field(default_factory=_column)
    sent_bytes: array[float] = field(default_factory=_column)
    received_bytes: array[float] = field(default_factory=_column)

    def extend(self, samples: Sequence[LinkSample]) -> None:
        for sample in samples[self.samples :]:
            if not self.time_s:
                self.time_s.append(sample.time_s - sample.interval_s)
                self.sent_bytes.append(0.0)
                self.received_bytes.append(0.0)
            self.time_s.append(sample.time_s)
            self.sent_bytes.append(self.sent_bytes[-1] + sample.sent_bytes)
            self.received_bytes.append(self.received_bytes[-1] + sample.received_bytes)
        self.samples = len(samples)


@dataclass(slots=True)
class EvaluationColumns:
    """The loss on text that is not trained on, a number per evaluation."""

    time_s: array[float] = field(default_factory=_column)
    loss: array[float] = field(default_factory=_column)

    def extend(self, evaluations: Sequence[RankEvaluation]) -> None:
        for one in evaluations[len(self.loss) :]:
            self.time_s.append(one.time_s)
            self.loss.append(one.loss)


class Columns:
    """All ranks and links of the newest attempt."""

    def __init__(self) -> None:
        self._attempt = 0
        self.ranks: dict[Rank, RankColumns] = {}
        self.links: dict[str, LinkColumns] = {}
        self.evaluation = EvaluationColumns()

    def extend(self, history: JobHistory) -> None:
        """Take what is new; a new attempt begins afresh."""
        attempt = history.view.attempt
        if attempt.number != self._attempt:
            self._attempt, self.ranks, self.links = attempt.number, {}, {}
            self.evaluation = EvaluationColumns()
        self.evaluation.extend(history.evaluations)
        for placement in attempt.placements:
            for rank in placement.ranks:
                series = history.ranks.get(Rank(rank))
                if series is not None:
                    columns = self.ranks.setdefault(Rank(rank), RankColumns())
                    columns.extend(series, placement.ranks)
            samples = history.links.get(placement.node)
            if samples:
                self.links.setdefault(placement.node, LinkColumns()).extend(samples)

    @property
    def has_steps(self) -> bool:
        return any(columns.steps for columns in self.ranks.values())


def floats(column: array[float], length: int | None = None) -> Floats:
    """A copy: a view would forbid the column to grow."""
    values: Floats = np.array(column, dtype=np.float64)
    return values if length is None else values[:length]


def _or_nan(value: float | None) -> float:
    return nan if value is None else float(value)


def _across(by_peer: dict[int, int], own_node: range) -> float:
    return float(sum(size for peer, size in by_peer.items() if peer not in own_node))
