"""Queue order: which waiting job starts first. Pure; all nodes decide alike, so that no two jobs
deadlock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import JobRecord

KEPT_AFTER_S = tunables.seconds("launch.reservation_after_s")


def order(record: JobRecord) -> tuple[int, float, JobId]:
    """Return the sort key of a queued job: by priority, then by submission time."""
    return (-record.spec.priority, record.attempt.submitted_s, record.job_id)


def kept_for(
    job_id: JobId,
    gpus: Collection[int],
    waiting: Iterable[JobRecord],
    *,
    mine: tuple[int, float, JobId],
    now_s: float,
) -> JobRecord | None:
    """Find a job for which one of this node's ``gpus`` is reserved, ahead of the requesting job.

    Args:
        job_id: the requesting job.
        waiting: queued jobs that were deposited here.
        mine: :func:`order` of the requesting job.
        now_s: Unix time.
    """
    for record in sorted(waiting, key=order):
        own = next(p for p in record.attempt.placements if p.node_id == record.part.node_id)
        if record.job_id == job_id or order(record) > mine or not set(gpus) & set(own.gpus):
            continue
        has_waited = now_s - record.attempt.submitted_s >= KEPT_AFTER_S
        if order(record)[0] < mine[0] or has_waited:
            return record
    return None
