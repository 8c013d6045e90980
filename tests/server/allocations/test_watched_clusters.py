"""Clusters of allocations that a server watches: how many are open, which is closed for another."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_mntrain.cluster.loop import ClosedError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.sources.source import NodesRequest
from jupyter_mntrain.server.allocations import watched_clusters as module
from jupyter_mntrain.server.allocations.watched_clusters import WatchedClusters
from jupyter_mntrain.sources.allocation_book import AllocationBook, AllocationNote
from tests.standin.cluster import StandInCluster
from tests.standin.job_handle import StandInJob
from tests.standin.training import sample_job


class Watching:
    """At most two clusters of allocations besides a server's own."""

    def __init__(self) -> None:
        own: Any = StandInCluster()
        self.own = own
        self.made: list[StandInCluster] = []
        self.clusters = WatchedClusters(own, lambda: None, self._connect)

    @property
    def open(self) -> list[str]:
        there = [one.name for one in self.made if not one.closed]
        assert len(there) == sum(len(one.listeners) for one in self.made)
        return there

    def _connect(self, name: str) -> Any:
        cluster = StandInCluster(jobs=[StandInJob(sample_job({"wopr": 1}))])
        cluster.name = name
        self.made.append(cluster)
        return cluster


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Watching:
    monkeypatch.setattr(module, "MOST_WATCHED", 2)
    return Watching()


def remember(cluster: str, *jobs: str) -> None:
    note = AllocationNote(cluster, "7", NodesRequest("slurm", 2), f"/shared/{cluster}", jobs)
    AllocationBook().add(note)


def test_one_that_is_over_is_closed_for_a_new_one(watching: Watching) -> None:
    clusters = watching.clusters
    for name in ("slurm-1", "slurm-2", "slurm-3"):
        clusters.watch(name)
    assert watching.open == ["slurm-1", "slurm-2"], "both go on"
    clusters.end("slurm-2")
    clusters.end("slurm-1")
    clusters.end("slurm-2")
    clusters.watch("slurm-3")
    assert watching.open == ["slurm-2", "slurm-3"]
    clusters.watch("slurm-4")
    assert watching.open == ["slurm-3", "slurm-4"]
    clusters.watch("slurm-5")
    assert watching.open == ["slurm-3", "slurm-4"]


def test_a_job_is_found_whatever_is_open_and_no_more_is_open_then(watching: Watching) -> None:
    job = watching.own.to_launch
    remember("slurm-3", job.id)
    clusters = watching.clusters
    for name in ("slurm-1", "slurm-2", "slurm-1"):
        clusters.watch(name)
    assert clusters.find(job.id).id == job.id
    assert watching.open == ["slurm-1", "slurm-3"], "the other one was asked for earlier"
    assert watching.made[-1].followed


def test_what_is_closed_opens_nothing(watching: Watching) -> None:
    clusters = watching.clusters
    clusters.watch("slurm-1")
    clusters.close()
    clusters.watch("slurm-2")
    with pytest.raises(ClosedError):
        clusters.open("slurm-3")
    assert watching.open == []
    assert len(watching.made) == 1
    assert watching.own.closed


def test_the_job_of_a_page_is_remembered_with_its_allocation(watching: Watching) -> None:
    remember("slurm-1", "j-00000001")
    clusters = watching.clusters
    before = clusters.open("slurm-1").known_jobs()[0].job_id
    spec = watching.own.to_launch.spec()
    job = clusters.launch(JobId(before), spec, submitted_by="a page")
    note = AllocationBook().of_job(job.id)
    assert note is not None
    assert note.cluster == "slurm-1"
    assert note.jobs[-1] == job.id
    assert AllocationBook().of_last_launch() == note
    clusters.launch(None, spec)
    assert AllocationBook().of_last_launch() is None, "the newest is in no allocation"
