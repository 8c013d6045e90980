"""Forgetting jobs: what is deleted, what is said before, and what stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.agent.jobs.book import JobBook
from jupyter_mntrain.agent.jobs.forgetting import delete, deletion_of, prune
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.jobs.record_file import read_record
from jupyter_mntrain.model.errors import JobNotFoundError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import TRAINER
from jupyter_mntrain.model.text.label import JobLabel
from jupyter_mntrain.recipe.stored import RECIPE_FILE
from tests.agent.jobs.books import end_all, leased, make_book, polled, start


@pytest.fixture
def book(tmp_path: Path) -> Iterator[JobBook]:
    made = make_book(tmp_path / "state", "exec sleep 600")
    yield made
    end_all(made)


def ended(book: JobBook, *, saves: bool = False) -> LocalJob:
    job = start(book)
    run = book.directory.parent / "runs" / job.record.job_id
    assert run.is_dir(), "scripts make only the folder in it"
    if saves:
        (run / "checkpoints").mkdir()
        (run / "checkpoints" / "mine.pt").write_bytes(b"weights" * 1000)
    job.stop("enough", 0.0)
    polled(book, lambda: job.is_final, "its end")
    return job


def test_pruning_deletes_the_oldest_and_says_so_but_no_only_checkpoint(
    book: JobBook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("jupyter_mntrain.agent.jobs.book.KEPT_JOBS", 0)
    # The one that saves begins last: beginning a job prunes.
    empty = ended(book)
    saved = ended(book, saves=True)
    running = start(book)
    assert {job.record.job_id for job in book.all()} == {
        saved.record.job_id,
        running.record.job_id,
    }
    assert saved.directory.exists()
    assert not empty.directory.exists()
    runs = book.directory.parent / "runs"
    assert (runs / saved.record.job_id / "checkpoints" / "mine.pt").exists()
    assert not (runs / empty.record.job_id).exists()
    (warned,) = [one for one in caplog.records if one.levelname == "WARNING"]
    assert empty.record.job_id in warned.getMessage()


@pytest.mark.parametrize("with_checkpoints", [False, True])
def test_a_deletion_frees_what_was_announced(book: JobBook, *, with_checkpoints: bool) -> None:
    job = ended(book, saves=True)
    said = deletion_of(book, job.record)
    assert said.size_bytes > 0
    assert said.is_last_of_run
    assert Path(said.checkpoints).is_dir()
    assert said.checkpoints_bytes >= 7000
    delete(book, job, with_checkpoints=with_checkpoints)
    assert not job.directory.exists()
    assert Path(said.checkpoints).exists() is not with_checkpoints
    assert list(book.all()) == []
    with pytest.raises(JobNotFoundError):
        book.get(job.record.job_id)


def test_a_live_job_is_not_deleted(book: JobBook) -> None:
    job = start(book)
    with pytest.raises(RefusedError) as caught:
        delete(book, job, with_checkpoints=True)
    assert caught.value.kind is Kind.STILL_RUNNING
    assert job.directory.exists()


def test_a_label_is_kept_on_disk_and_an_older_one_is_ignored(book: JobBook) -> None:
    job = ended(book)
    job.put_label(JobLabel(name="best", note="lr 3e-4", time_s=2.0))
    job.put_label(JobLabel(name="late", time_s=1.0))
    assert read_record(job.directory).label == JobLabel(name="best", note="lr 3e-4", time_s=2.0)


RECIPE = """
[checkpoint]
directory = "{}"
"""


@pytest.mark.parametrize("with_checkpoints", [False, True])
def test_checkpoints_where_the_recipe_wants_them_are_the_runs_own(
    book: JobBook, tmp_path: Path, *, with_checkpoints: bool
) -> None:
    request = leased(book)
    entry, files = ("-m", TRAINER, RECIPE_FILE), {RECIPE_FILE: RECIPE.format(tmp_path / "kept")}
    spec = msgspec.structs.replace(request.spec, entry=entry, files=files)
    job = book.start(msgspec.structs.replace(request, spec=spec))
    saved = tmp_path / "kept" / job.record.run / "step-00000010"
    saved.mkdir(parents=True)
    (saved / "shard").write_bytes(b"weights" * 1000)
    job.stop("enough", 0.0)
    polled(book, lambda: job.is_final, "its end")
    said = deletion_of(book, job.record)
    assert (said.checkpoints, said.checkpoints_bytes >= 7000) == (str(saved.parent), True)
    prune(book, 0)
    assert [one.record.job_id for one in book.all()] == [job.record.job_id]
    delete(book, job, with_checkpoints=with_checkpoints)
    assert saved.exists() is not with_checkpoints
    assert not (book.directory.parent / "runs" / job.record.run).exists()
