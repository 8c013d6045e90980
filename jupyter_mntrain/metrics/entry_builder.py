"""Page entries: builds them from nodes and jobs of the live view. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.page_entries import JobEntry, NodeEntry, RankNumbers
from jupyter_mntrain.metrics.summary import JobNumbers
from jupyter_mntrain.model.records.job import JobView, PartStatus, RankStatus
from jupyter_mntrain.model.records.node_view import NodeView
from jupyter_mntrain.plan.versions import Divergence, divergences


def node_entries(nodes: Sequence[NodeView]) -> tuple[NodeEntry, ...]:
    """All nodes, each with its versions that are not the majority's."""
    seen: dict[str, int] = {}
    entries = []
    by_node = _divergences(nodes)
    for view in nodes:
        key = view.info.node_id if view.info else view.address
        # Two machines with one node id (a copied disk) are both shown.
        seen[key] = seen.get(key, 0) + 1
        entries.append(
            NodeEntry(
                key=key if seen[key] == 1 else f"{key}@{view.address}",
                name=view.name,
                view=view,
                divergences=tuple(by_node.get(view.name, ())),
            )
        )
    return tuple(entries)


def job_entry(
    view: JobView,
    *,
    submitted_by: str = "",
    numbers: JobNumbers | None = None,
    history: JobHistory | None = None,
) -> JobEntry:
    """One job, without its environment and files.

    Args:
        numbers: where it stands, if its journals are read.
        history: what its ranks wrote, if its journals are read.
    """
    return JobEntry(
        job_id=view.job_id,
        name=view.spec.name,
        state=view.state,
        entry=view.spec.entry,
        attempt=view.attempt.number,
        submitted_s=view.attempt.submitted_s,
        placements=view.attempt.placements,
        parts=view.parts,
        ranks=tuple(_rank(part, status, history) for part in view.parts for status in part.ranks),
        numbers=numbers or JobNumbers(step=0),
        submitted_by=submitted_by,
        problem=view.problem,
        stall=view.stall,
        restart=view.restart,
    )


def _divergences(nodes: Sequence[NodeView]) -> dict[str, list[Divergence]]:
    by_node: dict[str, list[Divergence]] = {}
    for one in divergences([view.info for view in nodes if view.info]):
        by_node.setdefault(one.node, []).append(one)
    return by_node


def _rank(part: PartStatus, status: RankStatus, history: JobHistory | None) -> RankNumbers:
    series = history.ranks.get(status.rank) if history else None
    progress = series.progress if series else None
    return RankNumbers(
        rank=status.rank,
        node=part.node,
        state=status.state,
        step=series.steps[-1].step if series and series.steps else status.step,
        activity=progress.what if progress else None,
        progress=(
            min(1.0, progress.done / progress.total) if progress and progress.total else None
        ),
    )
