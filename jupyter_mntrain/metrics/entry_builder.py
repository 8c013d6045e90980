"""Page entries: builds them from nodes and jobs of the live view. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.page_entries import JobEntry, NodeEntry
from jupyter_mntrain.metrics.summary import JobNumbers
from jupyter_mntrain.model.failure.headline import what_hurts
from jupyter_mntrain.model.lifecycle.listing import elapsed_s, job_step
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.model.records.node import NodeView
from jupyter_mntrain.model.text.secrets import shown_words
from jupyter_mntrain.plan.software.versions import divergences


def node_entries(nodes: Sequence[NodeView]) -> tuple[NodeEntry, ...]:
    """Build the entries of all nodes, each with the versions that differ from the majority's."""
    seen: dict[str, int] = {}
    entries = []
    different = divergences([view.info for view in nodes if view.info])
    for view in nodes:
        key = view.info.node_id if view.info else view.address
        # Two machines with one node id (a copied disk) are both shown.
        seen[key] = seen.get(key, 0) + 1
        entries.append(
            NodeEntry(
                key=key if seen[key] == 1 else f"{key}@{view.address}",
                name=view.name,
                view=view,
                divergences=tuple(one for one in different if one.node == view.name),
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
    """Build the entry of one job, without its environment and files, and with secrets hidden.

    Args:
        numbers: where it stands, if its journals are read; else what its nodes' records tell.
        history: what its ranks wrote, if its journals are read.
    """
    ranks = history.ranks.values() if history else ()
    hurts = what_hurts(view)
    return JobEntry(
        job_id=view.job_id,
        name=view.spec.name,
        state=view.state,
        entry=shown_words(view.spec.entry),
        attempt=view.attempt.number,
        submitted_s=view.attempt.submitted_s,
        placements=view.attempt.placements,
        parts=view.parts,
        numbers=numbers or _numbers(view),
        progress=tuple(one.progress for one in ranks if one.progress is not None),
        submitted_by=submitted_by,
        problem=view.problem,
        reasons=view.verdict.told_reasons if view.verdict else "",
        stall=view.stall,
        warnings=tuple(one.problem for one in hurts if one.hurt == "warned"),
        hurt=hurts[0].hurt if hurts else None,
        restart=view.restart,
        note=view.label.note,
        run=None if view.run == view.job_id else view.run,
        loss_line=view.loss_line,
    )


def listed_entry(view: JobView) -> JobEntry:
    """Build an entry for a long list, for which no journals are read; evidence is left out."""
    parts = tuple(msgspec.structs.replace(part, evidence=None) for part in view.parts)
    told = msgspec.structs.replace(view, parts=parts)
    entry = job_entry(told, submitted_by=view.submitted_by)
    problem = entry.problem and msgspec.structs.replace(entry.problem, detail="")
    return msgspec.structs.replace(entry, problem=problem)


def _numbers(view: JobView) -> JobNumbers:
    """Return what the nodes' records say of a job whose journals are not read."""
    line = view.loss_line
    is_over = view.state in TERMINAL
    return JobNumbers(
        step=job_step(view),
        total_steps=line.total_steps if line else None,
        elapsed_s=elapsed_s(view, 0.0) if is_over else None,
    )
