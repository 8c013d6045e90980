"""Job book: an unexpected error ends one part, with an id that the log has."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from jupyter_mntrain.agent.attempt import directory
from jupyter_mntrain.agent.attempt.processes import marked, metrics_of
from jupyter_mntrain.agent.jobs.book import JobBook
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.events import StateLost, Warned
from jupyter_mntrain.model.records.job import Origin
from jupyter_mntrain.model.records.metrics import PartChange, RankStep, encoder, journal_decoder
from tests.agent.jobs.books import (
    close,
    end_all,
    leased,
    make_book,
    polled,
    read_only,
    start,
)
from tests.waiting import until


@pytest.fixture
def book(tmp_path: Path) -> Iterator[JobBook]:
    made = make_book(tmp_path / "state", "exec sleep 600")
    yield made
    end_all(made)


def refused(book: JobBook) -> RefusedError:
    request = leased(book)
    with pytest.raises(RefusedError) as caught:
        book.start(request)
    assert not book.all()
    assert not book.leases.all()
    assert caught.value.problem.node == "node1"
    return caught.value


def test_a_part_that_cannot_be_started_is_refused_and_nothing_is_left(
    book: JobBook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    problem = refused(book).problem
    assert problem.kind is Kind.NOT_STARTED
    assert "/nowhere/python" in problem.cause
    assert problem.id
    assert problem.id in problem.fix
    (logged,) = [one for one in caplog.records if problem.id in one.getMessage()]
    assert logged.exc_info is not None, "the traceback stands next to it"
    assert not list(book.directory.glob("j-*"))


def test_who_hears_that_a_job_has_ended_knows_that_its_lease_is_free(tmp_path: Path) -> None:
    book = make_book(tmp_path / "state", "exit 0")
    told: list[int] = []
    book.on_release = lambda: told.append(len(book.leases.all()))
    job = start(book)
    assert len(book.leases.all()) == 1
    try:
        polled(book, lambda: told, "its end")
    finally:
        end_all(book)
    assert not job.is_active
    assert told == [0]


def test_a_read_only_state_directory_refuses_a_start(book: JobBook) -> None:
    with read_only(book.directory.parent):
        problem = refused(book).problem
    assert problem.id
    assert "Read-only" in problem.cause or "Permission" in problem.cause


def test_a_supervisor_that_started_in_vain_does_not_go_on(
    book: JobBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a disk that is full just then: it runs, and its identity cannot be stored."""
    started: list[Path] = []

    def fill_up(path: Path, content: bytes, **options: int) -> None:
        if path.name == "supervisor.json":
            started.append(path.parent)
            raise OSError(28, "No space left on device")
        write_atomically(path, content, **options)

    monkeypatch.setattr(directory, "write_atomically", fill_up)
    assert refused(book).kind is Kind.DISK_FULL
    assert not marked(started[0])


def test_a_job_that_cannot_be_followed_ends_and_the_others_go_on(
    book: JobBook, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = start(book), start(book)
    (bad.attempt.path / "status.json").write_text("not JSON")
    with caplog.at_level(logging.ERROR):
        polled(book, lambda: not bad.is_active, "the bad one's end")
    problem = bad.record.part.problem
    assert problem is not None
    assert (bad.record.part.state, problem.kind) == ("failed", Kind.BROKEN)
    assert problem.id in caplog.text
    assert not marked(bad.attempt.path)
    assert good.is_active
    assert good.attempt.supervisor is not None
    os.kill(good.attempt.supervisor.pid, signal.SIGTERM)
    polled(book, lambda: not good.is_active, "the good one's end")
    assert not book.leases.all()


def test_a_job_whose_state_is_lost_says_so_and_ends_with_that(tmp_path: Path) -> None:
    lost = Problem(kind=Kind.NO_STATE, cause="it is on a file system that is read-only")
    book = make_book(tmp_path / "state", "exec sleep 600")
    job, back = start(book), start(book)
    try:
        until(lambda: all(marked(one.attempt.path) for one in (job, back)), "the programs")
        with read_only(book.directory):
            for one in (job, back):
                one.change(StateLost(problem=lost))
            assert job.record.part.state_problem == lost
            (rank,) = marked(job.attempt.path)
            os.kill(rank, signal.SIGKILL)
            polled(book, lambda: not job.is_active, "its end")
            part = job.record.part
            assert (part.state, part.state_problem) == ("failed", None)
            assert part.problem is not None
            assert part.problem.kind is Kind.NO_STATE
            assert lost.cause in part.problem.cause
        back.change(StateLost(problem=None))
        polled(book, lambda: job.is_final, "its record on disk")
        assert back.is_active
        assert back.record.part.state_problem is None
    finally:
        end_all(book)


@pytest.mark.parametrize("is_restarted", [False, True], ids=["same-agent", "next-agent"])
def test_what_ranks_wrote_before_an_end_on_a_read_only_disk_is_journaled_later(
    tmp_path: Path, is_restarted: bool
) -> None:
    """The journal is open, and takes lines all the same, or cannot be opened."""
    book = make_book(tmp_path / "state", "exec sleep 600")
    try:
        first = job = start(book)
        until(lambda: marked(job.attempt.path), "the program")
        rank = metrics_of(job.attempt.path) / "rank-0.ndjson"
        rank.parent.mkdir(exist_ok=True)
        steps = [RankStep(time_s=1.0, rank=Rank(0), step=one, step_s=0.1) for one in range(1, 4)]
        if is_restarted:
            close(book)
            book = make_book(tmp_path / "state", "exec sleep 600")
            book.load()
            job = book.get(job.job_id)
        rank.write_bytes(b"".join(encoder.encode(one) + b"\n" for one in steps))
        with read_only(book.directory):
            os.kill(*marked(job.attempt.path), signal.SIGKILL)
            polled(book, lambda: not job.is_active, "its end")
            assert not job.is_final
        polled(book, lambda: job.is_final, "all of it on disk")
        lines = (book.directory / job.job_id / "journal.ndjson").read_bytes().splitlines()
        bodies = [journal_decoder.decode(line).body for line in lines]
        assert [one for one in bodies if isinstance(one, RankStep)] == steps
        assert isinstance(bodies[-1], PartChange)
        assert bodies[-1].part.state == "failed"
    finally:
        end_all(book)
        if (supervisor := first.attempt.supervisor) is not None:
            supervisor.wait()


def test_two_jobs_of_a_run_never_run_at_once(book: JobBook) -> None:
    first = start(book)
    run = first.record.job_id
    request = leased(book)
    origin = Origin(job=run, run=run, attempts=1)
    request = msgspec.structs.replace(
        request, spec=msgspec.structs.replace(request.spec, origin=origin)
    )
    with pytest.raises(RefusedError) as caught:
        book.start(request)
    assert caught.value.kind is Kind.STILL_RUNNING
    assert list(book.all()) == [first]
    first.stop("enough", 0.0)
    polled(book, lambda: not first.is_active, "its end")
    again = leased(book)
    book.start(msgspec.structs.replace(again, spec=request.spec))


STEPS = "".join(
    f'{{"kind":"step","time_s":1,"rank":0,"step":{step},"step_s":1,"loss":{loss}}}\\n'
    for step, loss in ((1, 4.5), (2, '"NaN"'), (3, 2.25))
)
TELLS = f"printf '{STEPS}' > $MNTRAIN_METRICS_DIR/rank-0.ndjson"


def test_an_ended_job_keeps_the_line_of_its_losses_with_its_record(tmp_path: Path) -> None:
    book = make_book(tmp_path / "state", f"{TELLS}\nexit 0")
    job = start(book)
    polled(book, lambda: job.is_final, "the job ends")
    end_all(book)
    again = make_book(tmp_path / "state", "")
    again.load()
    line = again.get(job.record.job_id).record.loss_line
    again.close()
    assert line is not None
    assert (line.lows, line.first, line.last) == ((4.5, "NaN", 2.25), 4.5, 2.25)


def test_a_running_job_has_the_line_of_its_losses_so_far(tmp_path: Path) -> None:
    book = make_book(tmp_path / "state", f"{TELLS}\nexec sleep 600")
    job = start(book)
    polled(
        book, lambda: (line := job.record.loss_line) and line.last == 2.25, "its losses are read"
    )
    assert job.is_active
    end_all(book)


def test_nothing_is_left_open_of_jobs_that_have_ended(tmp_path: Path) -> None:
    book = make_book(tmp_path / "state", f"{TELLS}\nexit 0")
    own = psutil.Process()
    before = {one.pid for one in own.children()}, own.num_fds()
    jobs = [start(book) for _ in range(3)]
    polled(book, lambda: all(job.is_final for job in jobs), "the jobs end")

    def rested() -> bool:
        book.rest()
        now = {one.pid for one in own.children()}, own.num_fds()
        return now == before

    until(rested, "no supervisor and no open file to be left")
    assert all(job.samples.journal.last_seq for job in jobs)  # and it is there when it is asked for
    book.rest()
    assert rested()
    assert not set(vars(jobs[0])) & {"samples", "attempt", "gathering"}
    end_all(book)


def test_a_job_that_rested_takes_what_is_still_found_out_about_it(tmp_path: Path) -> None:
    book = make_book(tmp_path / "state", "exit 1")
    job = start(book)
    polled(book, lambda: job.is_final, "the job ends")
    book.rest()
    seq = job.samples.journal.last_seq
    book.rest()
    late = Problem(kind=Kind.WAITED_TOO_LONG, cause="no attempt follows", fix="launch it again")
    job.change(Warned(problem=late))
    assert job.samples.journal.last_seq == seq + 1
    assert late.kind in [one.kind for one in job.record.part.warnings]
    end_all(book)
