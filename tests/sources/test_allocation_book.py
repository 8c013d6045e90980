"""Allocation book: what a driver remembers of the allocations that it asked for."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.model.sources.source import NodesRequest
from jupyter_mntrain.sources.allocation_book import REMEMBERED, AllocationBook, AllocationNote


def note(cluster: str) -> AllocationNote:
    return AllocationNote(cluster, "7", NodesRequest("slurm", 2), f"/shared/{cluster}")


@pytest.fixture
def book(tmp_path: Path) -> AllocationBook:
    return AllocationBook(tmp_path)


def test_an_allocation_is_found_by_its_cluster_and_its_jobs(
    book: AllocationBook, tmp_path: Path
) -> None:
    for name in ("slurm-1", "slurm-2"):
        book.add(note(name))
    book.launched("slurm-1", "j-11")
    book.launched("slurm-2", "j-22")
    book.launched("slurm-1", "j-12")
    again = AllocationBook(tmp_path)
    assert again.of_cluster("slurm-2") == msgspec.structs.replace(note("slurm-2"), jobs=("j-22",))
    found = again.of_job("j-1")
    assert found is not None
    assert found.cluster == "slurm-1"
    assert found.jobs == ("j-11", "j-12")
    assert again.of_job("j-3") is again.of_job("") is again.of_cluster("x") is None


def test_the_last_launch_may_have_been_elsewhere(book: AllocationBook) -> None:
    book.launched("lab", "j-00")
    assert book.of_last_launch() is None
    book.add(note("slurm-1"))
    assert book.of_last_launch() == note("slurm-1")
    book.forget("slurm-1")
    assert book.of_last_launch() is None
    book.add(note("slurm-1"))
    book.launched("slurm-1", "j-11")
    last = book.of_last_launch()
    assert last is not None
    assert last.cluster == "slurm-1"
    book.launched("lab", "j-01")
    assert book.of_last_launch() is None


def test_what_is_forgotten_leaves_no_keys(book: AllocationBook, tmp_path: Path) -> None:
    names = [f"slurm-{number}" for number in range(REMEMBERED + 2)]
    for name in names:
        (tmp_path / "clusters" / name).mkdir(parents=True)
        book.add(note(name))
    book.forget(names[-1])
    left = {path.name for path in (tmp_path / "clusters").iterdir()}
    assert left == {*names[2:-1]}
    assert book.of_cluster(names[1]) is book.of_cluster(names[-1]) is None
