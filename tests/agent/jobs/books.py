"""A job book with real supervisors, whose ranks' interpreter is a script of the test's: no
torch."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_mntrain.agent.jobs.book import JobBook
from jupyter_mntrain.agent.jobs.leases import LeaseBook
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.listeners import Listeners
from jupyter_mntrain.model.api import LeaseRequest, StartRequest
from jupyter_mntrain.model.ids import JobId, NodeId, Rank, new_job_id
from jupyter_mntrain.model.records.job import Attempt, JobSpec, Participant, Placement
from jupyter_mntrain.telemetry.gpus import GpuReader
from tests.waiting import PATIENCE_S

NODE = NodeId("1" * 32)


def make_book(state: Path, program: str) -> JobBook:
    """Args:
    program: of the shell, run instead of torchrun.
    """
    state.mkdir(exist_ok=True)
    python = state / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    return JobBook(
        directory=state / "jobs",
        node_id=NODE,
        node="node1",
        python=str(python),
        leases=LeaseBook(clock=time.monotonic),
        listeners=Listeners(),
        gpus=GpuReader(),
    )


def start(book: JobBook, job_id: JobId | None = None) -> LocalJob:
    return book.start(leased(book, job_id))


def leased(book: JobBook, job_id: JobId | None = None) -> StartRequest:
    """A request for one rank here, whose lease is granted."""
    job_id = job_id or new_job_id()
    asked = LeaseRequest(job_id=job_id, attempt=1, ranks=1, hold_port=0)
    granted = book.leases.grant(asked, address="127.0.0.1", node="node1")
    place = Placement(
        node_id=NODE,
        node="node1",
        node_rank=0,
        first_rank=Rank(0),
        nproc=1,
        gpus=(),
        interface="lo",
        address="127.0.0.1",
        agent=("127.0.0.1:1",),
    )
    attempt = Attempt(
        number=1,
        placements=(place,),
        master_address="127.0.0.1",
        master_port=granted.port or 0,
        submitted_s=time.time(),
    )
    spec = JobSpec(entry=("x.py",), participants=(Participant("node1"),))
    return StartRequest(job_id=job_id, spec=spec, attempt=attempt)


def polled(book: JobBook, is_enough: Callable[[], object], what: str = "it") -> None:
    """Poll as an agent does, until it is enough."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_enough():
        assert time.monotonic() < deadline, f"not in time: {what}"
        book.poll()
        time.sleep(0.02)


def end_all(book: JobBook) -> None:
    for job in book.all():
        job.attempt.kill()
        if job.attempt.supervisor is not None:
            job.attempt.supervisor.wait()
    close(book)


def close(book: JobBook) -> None:
    """As an agent that ends: its jobs go on, their ports are theirs."""
    for one in tuple(book.leases.all()):
        book.leases.release(one.job_id, one.attempt)
    book.close()


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Make a directory read-only, for root by a mount over itself."""
    if os.geteuid() != 0:
        directory.chmod(0o500)
        try:
            yield
        finally:
            directory.chmod(0o700)
        return
    subprocess.run(["mount", "--bind", directory, directory], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", directory], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)
