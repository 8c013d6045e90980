"""Idleness: when an allocation that nobody uses ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_mntrain.agent.jobs.allocation_end import FIRST_JOB_S, Idleness, save_if_wished
from jupyter_mntrain.agent.jobs.book import JobBook
from tests.agent.jobs.books import leased, make_book

BEGUN_S = 1_000_000.0
LIMIT_S = 60.0


class Clock:
    now_s = BEGUN_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def book(tmp_path: Path) -> JobBook:
    return make_book(tmp_path / "state", "exit 0")


def idleness(book: JobBook, mark: Path) -> tuple[Idleness, Clock]:
    clock = Clock()
    return Idleness(mark, book, LIMIT_S, clock=clock), clock


def use(mark: Path, at_s: float) -> None:
    mark.touch()
    os.utime(mark, (at_s, at_s))


def test_the_first_job_may_take_longer(book: JobBook, tmp_path: Path) -> None:
    mark = tmp_path / "used"
    use(mark, BEGUN_S - 5.0)  # in an earlier grant
    idle, clock = idleness(book, mark)
    clock.now_s += FIRST_JOB_S - 1.0
    assert not idle.is_over()
    clock.now_s += 2.0
    assert idle.is_over()


def test_it_is_over_so_long_after_the_last_job_of_any_agent(book: JobBook, tmp_path: Path) -> None:
    mark = tmp_path / "used"
    idle, clock = idleness(book, mark)
    use(mark, BEGUN_S + 10.0)  # by another agent
    clock.now_s += LIMIT_S + 9.0
    assert not idle.is_over()
    clock.now_s += 2.0
    assert idle.is_over()


def test_a_job_that_is_about_to_start_is_a_use(book: JobBook, tmp_path: Path) -> None:
    mark = tmp_path / "used"
    idle, clock = idleness(book, mark)
    wanted = leased(book)
    clock.now_s += 2 * FIRST_JOB_S
    assert not idle.is_over()
    assert mark.exists()
    book.leases.release_unstarted(wanted.job_id)


def test_without_a_job_a_wish_to_save_ends_it_at_once(book: JobBook, tmp_path: Path) -> None:
    wish = tmp_path / "save"
    assert not save_if_wished(wish, book)
    wish.touch()
    assert save_if_wished(wish, book)
    assert not (tmp_path / "again").exists()
