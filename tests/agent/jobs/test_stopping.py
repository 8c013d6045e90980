"""Every stop ends, or names what holds it: with real supervisors and processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_mntrain.agent.attempt.processes import start_time
from jupyter_mntrain.agent.jobs import attempt_end
from jupyter_mntrain.agent.jobs.book import JobBook
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from tests.agent.jobs.books import end_all, make_book, polled, read_only, start
from tests.waiting import until

# A child that ignores SIGTERM and has cleared its environment: only its ancestors betray it.
STUBBORN = """
trap '' TERM
env -i sh -c 'trap "" TERM; echo ready; while :; do sleep 0.1; done' &
wait
while :; do sleep 0.1; done
"""

# Whoever starts a process waits uninterruptibly until it executes its program: D, as on a disk
# that hangs. This one first opens a pipe that nobody writes to.
UNINTERRUPTIBLE = """
import os
os.mkfifo("pipe")
print("ready", flush=True)
opening = (os.POSIX_SPAWN_OPEN, 0, "pipe", os.O_RDONLY, 0)
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[opening])
"""


@pytest.fixture
def book(tmp_path: Path) -> Iterator[JobBook]:
    made = make_book(tmp_path / "state", STUBBORN)
    yield made
    end_all(made)


@pytest.fixture
def job(book: JobBook) -> LocalJob:
    job = start(book)
    log = job.attempt.path / "log"
    until(lambda: "ready" in log.read_text(), "the program")
    return job


def supervisor_of(job: LocalJob) -> int:
    assert job.attempt.supervisor is not None
    return job.attempt.supervisor.pid


def end(book: JobBook, job: LocalJob) -> float:
    """How long it takes."""
    begun = time.monotonic()
    polled(book, lambda: not job.is_active, "the end")
    return time.monotonic() - begun


def assert_gone(before: dict[int, int]) -> None:
    until(lambda: not any(start_time(pid) == at for pid, at in before.items()), "all to be gone")


def test_a_stop_goes_around_a_frozen_supervisor_and_names_it_meanwhile(
    book: JobBook, job: LocalJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_end, "PATIENCE_S", 1.0)
    monkeypatch.setattr(attempt_end, "LOOK_INTERVAL_S", 0.1)
    supervisor, before = supervisor_of(job), dict(job.attempt.alive())
    os.kill(supervisor, signal.SIGSTOP)
    job.stop("enough", 0.3)
    polled(book, lambda: job.record.part.waits_for, "what it waits for")
    held = {one.pid: one for one in job.record.part.waits_for}
    assert held[supervisor].status.startswith("T")
    assert "supervisor" in held[supervisor].command
    assert job.record.part.state == "stopping"
    end(book, job)
    part = job.record.part
    assert (part.state, part.waits_for, part.leftovers) == ("canceled", (), ())
    assert_gone(before)


def test_a_kill_waits_for_no_supervisor(book: JobBook, job: LocalJob) -> None:
    before = dict(job.attempt.alive())
    os.kill(supervisor_of(job), signal.SIGSTOP)
    job.stop("enough", 0.0)
    assert end(book, job) < attempt_end.PATIENCE_S
    assert job.record.part.state == "canceled"
    assert_gone(before)


def test_a_kill_shortens_a_stop_that_is_under_way(book: JobBook, job: LocalJob) -> None:
    before = dict(job.attempt.alive())
    job.stop("enough", 3600.0)
    book.poll()
    assert job.record.part.state == "stopping"
    job.stop("now", 0.0)
    end(book, job)
    assert job.record.part.stop_reason == "enough"
    assert_gone(before)


def test_the_next_agent_goes_around_a_supervisor_that_the_last_one_asked(
    book: JobBook, job: LocalJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_end, "PATIENCE_S", 0.5)
    before = dict(job.attempt.alive())
    os.kill(supervisor_of(job), signal.SIGSTOP)
    job.stop("enough", 0.1)
    later = make_book(book.directory.parent, STUBBORN)
    later.load()
    (adopted,) = later.all()
    end(later, adopted)
    assert adopted.record.part.state == "canceled"
    end_all(later)
    assert_gone(before)


def test_a_stop_ends_where_nothing_can_be_written_and_is_stored_later(
    book: JobBook, job: LocalJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_end, "PATIENCE_S", 1.0)
    before = dict(job.attempt.alive())
    with read_only(book.directory.parent):
        job.stop("enough", 0.1)
        end(book, job)
        assert job.record.part.state == "canceled"
        assert not job.is_final
    assert_gone(before)
    polled(book, lambda: job.is_final, "the record on disk")


def test_an_uninterruptible_process_is_named_with_where_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_end, "LOOK_INTERVAL_S", 0.1)
    book = make_book(tmp_path / "state", f"exec {sys.executable} -c '{UNINTERRUPTIBLE}'")
    try:
        job = start(book)
        log = job.attempt.path / "log"
        until(lambda: "ready" in log.read_text(), "the program")
        job.stop("enough", 3600.0)
        polled(
            book,
            lambda: [one for one in job.record.part.waits_for if one.status == "D (disk sleep)"],
            "the process",
        )
        held = next(one for one in job.record.part.waits_for if one.waits_in)
        assert "posix_spawn" in held.command
        job.stop("enough", 0.0)
        end(book, job)
        assert job.record.part.waits_for == ()
    finally:
        end_all(book)
