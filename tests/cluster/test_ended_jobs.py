"""Ended jobs in a driver: listed in pages, found however old, followed by whoever asks for them."""

from __future__ import annotations

import time

import pytest

from jupyter_mntrain.cluster.cluster import Cluster
from jupyter_mntrain.cluster.view.record_search import RECENT
from jupyter_mntrain.model.api import JobDeleted
from jupyter_mntrain.model.errors import JobNotFoundError, SpecError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.listing import MOST_SEARCHED
from jupyter_mntrain.model.records.job import Origin
from tests.cluster.conftest import Open, wait_for
from tests.standin.agent import FakeAgent
from tests.standin.elsewhere import Elsewhere
from tests.standin.jobs import place, record

JOBS = 3 * RECENT
"""Ended ones: more than a driver hears of by itself."""


def name(number: int) -> JobId:
    return JobId(f"j-{number:08x}")


@pytest.fixture
def full(two: list[FakeAgent]) -> list[FakeAgent]:
    """Both nodes have the same ended jobs; the oldest of them began the run of the next one."""
    places = [
        place(agent.name, rank, rank, node_id=agent.node_id, agent=(agent.where,))
        for rank, agent in enumerate(two)
    ]
    for number in range(JOBS):
        origin = Origin(job=name(0), run=name(0), attempts=2) if number == 1 else None
        spec = {"name": f"run {number}", "files": {"a.py": f"print({number})"}, "origin": origin}
        for rank, agent in enumerate(two):
            agent.jobs[name(number)] = record(
                rank,
                "failed" if number % 2 else "succeeded",
                places=places,
                job_id=name(number),
                submitted_s=time.time() - 10_000 + number,
                spec=spec,
                ended_s=time.time() - 10_000 + 2 * number,
            )
    return two


@pytest.fixture
def driver(open_cluster: Open, full: list[FakeAgent]) -> Cluster:
    made = open_cluster(*full)
    wait_for(lambda: [node.liveness for node in made.nodes()] == ["up", "up"])
    return made


def ids(cluster: Cluster, **which: object) -> list[str]:
    return [view.job_id for view in cluster.jobs(**which)]  # type: ignore[arg-type]


def test_the_newest_are_listed_and_all_on_request(driver: Cluster) -> None:
    newest = [name(number) for number in reversed(range(JOBS))]
    assert ids(driver) == newest[:RECENT]
    assert ids(driver, everything=True) == newest
    assert ids(driver) == newest[:RECENT], "what was listed is not kept"
    assert {view.state for view in driver.jobs(everything=True)} == {"succeeded", "failed"}
    assert all(not view.spec.files for view in driver.jobs(everything=True))


def test_a_search_looks_at_all_of_them(driver: Cluster) -> None:
    assert ids(driver, search="RUN 7") == [name(7)]
    assert ids(driver, search=name(3)) == [name(3)]
    assert len(ids(driver, search="node1")) == JOBS
    assert ids(driver, search="nothing") == []
    with pytest.raises(SpecError):
        driver.jobs(search="a" * (MOST_SEARCHED + 1))


def test_they_are_sorted(driver: Cluster) -> None:
    assert ids(driver, everything=True, sort="duration")[0] == name(JOBS - 1)
    states = [view.state for view in driver.jobs(everything=True, sort="state")]
    assert states == ["failed"] * (JOBS // 2) + ["succeeded"] * (JOBS // 2)
    names = [view.spec.name for view in driver.jobs(everything=True, sort="name")]
    assert names == sorted(names)


@pytest.mark.parametrize("is_new", [True, False])
def test_an_old_job_is_found_with_its_files(
    open_cluster: Open, full: list[FakeAgent], *, is_new: bool
) -> None:
    made = open_cluster(*full)
    if not is_new:
        wait_for(lambda: [node.liveness for node in made.nodes()] == ["up", "up"])
    job = made.job(name(2)[:10])
    # A node that answers late is unknown for a moment.
    wait_for(lambda: job.view().state == "succeeded")
    assert [part.state for part in job.view().parts] == ["succeeded", "succeeded"]
    assert job.spec().files == {"a.py": "print(2)"}
    with pytest.raises(JobNotFoundError):
        made.job("j-ffffffff")


def test_a_run_is_known_by_all_of_its_jobs(driver: Cluster) -> None:
    plan = driver.job(name(0)).plan_resume()
    assert plan.run == name(0)
    origin = plan.spec.origin
    assert origin is not None
    assert origin.attempts == 4, "both jobs of it, two nodes each"


def test_a_node_that_missed_the_end_of_a_job_is_asked_for_its_part(
    driver: Cluster, full: list[FakeAgent]
) -> None:
    del full[1].jobs[name(5)]
    found = next(view for view in driver.jobs(search="run 5") if view.job_id == name(5))
    assert (found.state, [part.state for part in found.parts]) == ("failed", ["failed", "failed"])


def test_what_nodes_delete_is_gone(
    driver: Cluster, full: list[FakeAgent], elsewhere: Elsewhere
) -> None:
    newest = name(JOBS - 1)
    wait_for(lambda: newest in driver._driver.live.jobs)
    for agent in full:
        del agent.jobs[newest]
        elsewhere.do(agent.say, JobDeleted(job_id=newest))
    wait_for(lambda: newest not in driver._driver.live.jobs)
