"""Probe job: one that the driver starts for an answer, and that is gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from jupyter_mntrain.cluster.job import Job
from jupyter_mntrain.cluster.launch.launcher import AgentLauncher
from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.ids import new_job_id
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec

END_S = 10.0
"""How long the processes of a job that the driver starts for an answer may take to be gone, once
that is canceled: a benchmark, or the doctor's first step."""


@contextmanager
def probe_job(
    driver: DriverSession, launcher: AgentLauncher, spec: JobSpec, progress: Progress
) -> Iterator[Job]:
    """Start a job. An error, and Ctrl-C, too, ends and deletes it.

    Raises:
        SpecError, NodeError, RefusedError: as for :meth:`Cluster.launch`.
    """
    started = launcher.launch(spec, new_job_id(), progress=progress)
    job = Job(driver, driver.loop.run(started).job_id)
    try:
        with job.ending_with_driver():
            yield job
    except BaseException:
        delete_job(job)
        raise


def delete_job(job: Job) -> None:
    """End a job where it has not ended, and delete it, as far as its nodes answer."""
    with suppress(MntrainError):
        if job.state not in TERMINAL:
            job.kill()
            job.wait(END_S)
        job.remove()
