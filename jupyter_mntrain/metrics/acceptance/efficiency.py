"""Efficiency: how much of its single-node throughput each node keeps in a multi-node job."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.metrics.acceptance.acceptance_report import AcceptedNode, ScalingPoint
from jupyter_mntrain.model._record import Record


class Efficiency(Record, frozen=True):
    """Throughput per rank of a job, relative to that of the same job on the fewest nodes.

    Args:
        measured: 1 = linear.
        predicted: the same of what the plans predicted; ``None`` without plans.
    """

    measured: float
    predicted: float | None = None

    @property
    def of_predicted(self) -> float | None:
        """Measured efficiency divided by the predicted one; ``None`` if nothing was predicted."""
        return self.measured / self.predicted if self.predicted else None


def base_of(points: Sequence[ScalingPoint]) -> ScalingPoint | None:
    """Return the job on the fewest nodes among those that have figures."""
    known = [one for one in points if one.tokens_per_s]
    return min(known, key=lambda one: len(one.nodes), default=None)


def efficiency(point: ScalingPoint, base: ScalingPoint) -> Efficiency | None:
    """Return the efficiency of a job relative to ``base``; ``None`` if either has no figures."""
    measured = _share(point.tokens_per_s, point.ranks, base.tokens_per_s, base.ranks)
    if measured is None:
        return None
    predicted = _share(
        point.predicted_tokens_per_s, point.ranks, base.predicted_tokens_per_s, base.ranks
    )
    return Efficiency(measured, predicted)


def _share(
    rate: float | None, ranks: int, base_rate: float | None, base_ranks: int
) -> float | None:
    if not rate or not base_rate:
        return None
    return (rate / ranks) / (base_rate / base_ranks)


def sharing(nodes: Sequence[AcceptedNode], among: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the nodes that share a machine with another node, in the order given.

    Nodes that do not say on which boot of which machine they run are taken to have their own.

    Args:
        among: only these; default: all.
    """
    chosen = [one for one in nodes if not among or one.name in among]
    boots = [one.boot_id for one in chosen]
    return tuple(one.name for one in chosen if one.boot_id and boots.count(one.boot_id) > 1)
