"""``bench`` on two real agents: a job of two ranks over loopback, of which the figures are kept."""

from __future__ import annotations

import json
import threading

import pytest

from jupyter_mntrain.cli import main
from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.cluster.diagnostics.benchmark import ClusterBenchmark, bench_spec
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.doctor.benchmark import OPERATIONS, BenchReport
from jupyter_mntrain.model.records.job import Participant
from tests.agent.live import LiveAgent
from tests.cluster.conftest import wait_for
from tests.wording import says

LARGEST = "64 KiB"


@pytest.mark.slow
def test_two_ranks_are_timed_and_nothing_but_the_figures_stays(
    agents: list[LiveAgent], cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [word for agent in agents for word in ("--agent", agent.where)]
    words = ["--cluster", agents[0].cluster, *where, "--json", "bench", "--largest", LARGEST]
    code = main(words)
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert code == (1 if report.get("problems") else 0), captured.err
    assert report["backend"] == "gloo"
    assert len(report["ranks"]) == 2
    for operation in OPERATIONS:
        sizes = [one for one in report["sizes"] if one["operation"] == operation]
        assert [one["size_bytes"] for one in sizes] == [1024, 4096, 16384, 65536]
        assert all(one["bus_bytes_per_s"] > 0 for one in sizes)
    names = sorted(node.name for node in cluster.nodes())
    assert sorted((one["sender_node"], one["receiver_node"]) for one in report["pairs"]) == [
        (names[0], names[1]),
        (names[1], names[0]),
    ]
    assert report["line_bytes_per_s"] > 0, "the links were measured first"
    wait_for(lambda: len(benched(cluster)) == 2)
    kept = {(one.sender, one.receiver): one for one in benched(cluster)}
    for pair in report["pairs"]:
        one = kept[pair["sender_node"], pair["receiver_node"]]
        assert one.backend == "gloo"
        assert one.capacity.bytes_per_s == pytest.approx(pair["bytes_per_s"])
    wait_for(lambda: not [one for one in cluster.jobs() if one.spec.name == "bench"])


@pytest.mark.slow
def test_a_canceled_one_leaves_no_job(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def interrupted(*_: object, **__: object) -> None:
        begun.set()
        raise KeyboardInterrupt

    benchmark: ClusterBenchmark = cluster.benchmark
    monkeypatch.setattr("jupyter_mntrain.cluster.job.Job.wait", interrupted_once(interrupted))
    with pytest.raises(KeyboardInterrupt):
        benchmark.run(cluster.participants())
    assert begun.is_set()
    wait_for(lambda: not [one for one in cluster.jobs() if one.spec.name == "bench"])


def interrupted_once(interrupt):
    """``Job.wait`` that is interrupted, and then works again."""
    from jupyter_mntrain.cluster.job import Job

    real, calls = Job.wait, []

    def wait(self, *words, **settings):
        calls.append(self)
        return interrupt() if len(calls) == 1 else real(self, *words, **settings)

    return wait


def benched(cluster: Cluster):
    return [
        link
        for node in cluster.nodes()
        if node.info
        for interface in node.info.inventory.interfaces
        for link in interface.benched
    ]


def test_one_rank_has_nobody_to_talk_to() -> None:
    with pytest.raises(SpecError) as refused:
        bench_spec([Participant(node="node1")], 1024)
    assert says("a benchmark needs two ranks", str(refused.value))
    assert bench_spec([Participant(node="node1", nproc=2)], 1024).name == "bench"


def test_a_report_of_nothing_has_no_figures() -> None:
    report = BenchReport(job_id="j-1", nodes=(), backend="", time_s=0.0)  # type: ignore[arg-type]
    assert report.of("send") == ()
