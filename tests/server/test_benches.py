"""Benches of a server: one long work at a time, one that is canceled, and the newest result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.doctor.benchmark import BenchReport
from jupyter_mntrain.server.benches import Benches, BenchState, NewestReports
from jupyter_mntrain.server.long_works import LongWorks, WorkState, WorkTurns
from tests.waiting import until

REPORT = BenchReport(job_id=JobId("j-00000001"), nodes=("a", "b"), backend="gloo", time_s=1.0)


class BenchedCluster:
    """Its benchmark says how far it is until the test lets it end."""

    def __init__(self) -> None:
        self.benchmark = self
        self.may_end = threading.Event()
        self.runs = 0

    def refuse_read_only(self) -> None:
        pass

    def known_jobs(self) -> tuple[()]:
        return ()

    def participants(self, nodes: object, *, progress: Progress) -> tuple[()]:
        return ()

    def run(self, participants: object, *, progress: Progress) -> BenchReport:
        self.runs += 1
        while not self.may_end.wait(0.01):
            progress.report("measuring", self.runs, None)
        return REPORT


@pytest.fixture
def cluster() -> Any:
    return BenchedCluster()


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Benches]:
    def make(turns: WorkTurns | None = None, name: str = "lab") -> Benches:
        return Benches(turns or WorkTurns(), name, NewestReports(tmp_path / "benches.json"))

    return make


def test_the_newest_result_outlives_the_server(cluster: Any, make: Callable[..., Benches]) -> None:
    first = make()
    cluster.may_end.set()
    first.begin(cluster, ())
    until(lambda: not first.state().is_running, "its end")
    assert first.state().report == REPORT
    assert make().state().report == REPORT
    assert make(name="other").state().report is None


def test_a_damaged_file_of_results_is_replaced(
    cluster: Any, make: Callable[..., Benches], tmp_path: Path
) -> None:
    (tmp_path / "benches.json").write_text("{")
    benches = make()
    assert benches.state().report is None
    cluster.may_end.set()
    benches.begin(cluster, ())
    until(lambda: not benches.state().is_running, "its end")
    assert make().state().report == REPORT


def test_one_that_is_canceled_ends_and_another_one_begins(
    cluster: Any, make: Callable[..., Benches]
) -> None:
    benches = make()
    assert benches.begin(cluster, ()).is_running
    until(lambda: benches.state().done == 1, "it to run")
    benches.cancel()
    until(lambda: not benches.state().is_running, "its end")
    assert benches.state().problem is None
    assert benches.begin(cluster, ()).is_running
    cluster.may_end.set()
    until(lambda: benches.state().report == REPORT, "the second one")
    assert cluster.runs == 2


def test_a_report_that_comes_late_does_not_bring_an_ended_one_back(
    cluster: Any, make: Callable[..., Benches]
) -> None:
    benches = make()
    cluster.may_end.set()
    benches.begin(cluster, ())
    until(lambda: benches.state().report == REPORT, "its end")
    benches.report("measuring", 1, 2)
    assert benches.state() == BenchState(report=REPORT)


def test_beside_a_push_it_waits_and_can_be_canceled(
    cluster: Any, make: Callable[..., Benches]
) -> None:
    turns, pushed = WorkTurns(), threading.Event()
    works, benches = LongWorks(turns), make(turns)

    def push(progress: Progress) -> WorkState:
        pushed.wait()
        return WorkState()

    assert not works.carry_out("push", push).is_over
    assert benches.begin(cluster, ()).doing == "waiting for its turn"
    assert cluster.runs == 0
    assert not benches.cancel().is_running
    pushed.set()
    until(lambda: works.carry_out("push", push).is_over, "the push")
    assert cluster.runs == 0


def test_a_push_waits_for_a_benchmark(cluster: Any, make: Callable[..., Benches]) -> None:
    turns = WorkTurns()
    works, benches = LongWorks(turns), make(turns)
    benches.begin(cluster, ())
    assert works.carry_out("push", lambda _: WorkState()).doing == "waiting for its turn"
    cluster.may_end.set()
    until(lambda: works.carry_out("push", lambda _: WorkState()).is_over, "the push")
