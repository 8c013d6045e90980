"""Save request: asks the ranks of an attempt for a checkpoint, if they can save one."""

from __future__ import annotations

from pathlib import Path

from jupyter_mntrain.model.api import SaveRequest
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.job import TERMINAL, JobRecord
from jupyter_mntrain.telemetry.controls import Controls, read_controls, write_controls


def ask_to_save(request: SaveRequest, metrics: Path) -> None:
    """Write the request where the ranks look for it. Idempotent."""
    known = read_controls(metrics)
    saves = known.saves if request.key in known.saves else (*known.saves, request.key)
    write_controls(metrics, Controls(saves=saves, is_stop=known.is_stop or request.is_last))


def refuse_save(request: SaveRequest, record: JobRecord) -> None:
    """Check that a request can be met.

    Raises:
        RefusedError: the attempt has ended, another one is running, or the ranks do not take
            requests.
    """
    part, job_id = record.part, record.job_id
    if part.state in TERMINAL or request.attempt != record.attempt.number:
        raise RefusedError(
            f"attempt {request.attempt} of job {job_id} is over",
            fix=f"see whether the job has ended: mntrain status {job_id}",
            node=part.node,
        )
    if part.saves:
        return
    cause, fix = f"job {job_id} has not finished a step yet", "try again after its first step"
    if part.state == "running":
        cause = f"the ranks of job {job_id} do not save on request"
        fix = (
            "use the built-in trainer with a checkpoint directory, or a ControlReader and "
            "recorder.start(saves=True) in a script"
        )
    raise RefusedError(cause, fix=fix, node=part.node)
