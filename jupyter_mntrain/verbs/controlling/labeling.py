"""Labeling: reports a job's new name or note."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from jupyter_mntrain.model.quantities import agreeing
from jupyter_mntrain.verbs.verb import Context, Outcome

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job


def labeled_outcome(context: Context, job: Job, silent: tuple[str, ...]) -> Outcome:
    """Return the job's name and note now, and which nodes do not know them yet."""
    view = job.view()
    text = Text.assemble((job.id, "bold"), f" {view.spec.name}")
    if view.label.note:
        text.append(f": {view.label.note}")
    if silent:
        do = agreeing(silent, "does", "do")
        text.append(
            f"\n⚠ {', '.join(silent)} {do} not answer and {do} not know it yet; the other nodes "
            f"do. See {context.program} nodes",
            "yellow",
        )
    data = {"job_id": job.id, "name": view.spec.name, "note": view.label.note}
    return Outcome(text, data | {"silent": list(silent)}, job=job)
