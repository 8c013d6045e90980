"""Launches that wait for nodes, as all pages of a server are told of them."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import platformdirs
import pytest

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.http.json_handler import RequestRefusedError
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.sources.slots import SlotFile, write_slot
from jupyter_mntrain.model.sources.source import NodesRequest
from jupyter_mntrain.server.allocations import waiting_launches as module
from jupyter_mntrain.server.allocations.waiting_launches import WaitingLaunch, WaitingLaunches
from jupyter_mntrain.server.handlers.job_routes import cancel_launch
from jupyter_mntrain.server.updates import PageUpdates
from jupyter_mntrain.sources.allocation_book import AllocationBook, AllocationNote
from jupyter_mntrain.sources.awaited_launch import lock_file
from tests.server.conftest import CLUSTER, put_job
from tests.standin.elsewhere import Elsewhere
from tests.standin.slurm_tools import SlurmTools
from tests.waiting import coming
from tests.wording import says

pytestmark = pytest.mark.anyio

NAME = "slurm-3f9a2c"
JOB = JobId("j-00000042")


@pytest.fixture
def agents() -> Iterator[Elsewhere]:
    elsewhere = Elsewhere(iter(f"127.0.0.{number}" for number in range(1, 200)))
    yield elsewhere
    elsewhere.close()


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmTools:
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)
    tools = SlurmTools(tmp_path / "slurm", monkeypatch)
    # As a submission of the request leaves it.
    folder = platformdirs.user_state_path("mntrain") / "slurm" / "finetune-1"
    (tmp_path / "slurm" / "folder").write_text(str(folder))
    return tools


def remember(*jobs: str, cluster: str = NAME, directory: Path | None = None) -> None:
    request = NodesRequest(source="slurm", nodes=2, name="finetune")
    AllocationBook().add(AllocationNote(cluster, "7", request, str(directory or ""), jobs))


def held(squeue: Path, until: str) -> Path:
    """Have a command answer only once that is true; it adds its id to the file returned."""
    asked = squeue.with_name("asked")
    wait = f'echo $$ >> "{asked}"; until {until}; do sleep 0.05; done\n'
    squeue.write_text(squeue.read_text().replace("\n", f"\n{wait}", 1))
    return asked


class Watched:
    """The launches of a server on which one page listens, and what was told of them."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.ended: list[str] = []
        self.told: list[WaitingLaunch] = []
        """All that were shown after each look."""
        self.happens: Callable[[], object] = bool
        self.launches = WaitingLaunches(self._tell, self.opened.append, self.ended.append)

    def _tell(self) -> None:
        self.told += self.shown
        self.happens()

    @property
    def shown(self) -> tuple[WaitingLaunch, ...]:
        return self.launches.shown()

    @property
    def why(self) -> str:
        return " ".join(one.why.cause for one in self.shown if one.why)


@pytest.fixture
async def watched(anyio_backend: str) -> AsyncIterator[Watched]:
    found = Watched()
    found.launches.begin()
    yield found
    await found.launches.close()


async def test_a_launch_is_shown_while_it_waits(slurm: SlurmTools, watched: Watched) -> None:
    remember()
    await coming(lambda: watched.shown)
    (one,) = watched.shown
    assert (one.cluster, one.name, one.source, one.nodes) == (NAME, "finetune", "SLURM", 2)
    assert (one.state, one.word, one.job_id) == ("pending", "Resources", None)
    assert one.why is not None
    slurm.state = "RUNNING"
    await coming(lambda: watched.shown[0].state == "running")
    assert not watched.opened
    # Its job is in the list of jobs from now on.
    AllocationBook().launched(NAME, JOB)
    await coming(lambda: not watched.shown)
    await coming(lambda: NAME in watched.opened)


async def test_a_job_whose_nodes_were_taken_waits_again(
    slurm: SlurmTools, watched: Watched
) -> None:
    slurm.state = "RUNNING"
    remember(JOB)
    await coming(lambda: watched.opened)
    assert not watched.shown
    slurm.state = "PENDING"
    await coming(lambda: watched.shown)
    assert watched.shown[0].job_id == JOB
    assert not watched.ended
    slurm.state = "CANCELLED"
    await coming(lambda: not watched.shown)
    assert watched.ended == [NAME]


async def test_a_silent_scheduler_is_said_and_forgets_nothing(
    slurm: SlurmTools, watched: Watched
) -> None:
    remember()
    await coming(lambda: watched.why)
    before = watched.why
    slurm.state = "SILENT"
    await coming(lambda: watched.why != before)
    assert says("controller", watched.why)
    assert watched.shown[0].state == "pending"
    slurm.state = "PENDING"
    await coming(lambda: watched.why == before)


async def test_a_launch_whose_process_was_killed_is_told_as_such(
    slurm: SlurmTools, watched: Watched
) -> None:
    remember()
    await coming(lambda: watched.shown)
    lock = lock_file(NAME)
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()  # nobody holds it
    await coming(lambda: watched.shown[0].why and watched.shown[0].why.kind is Kind.NOT_STARTED)
    assert watched.shown[0].state == "pending"


async def test_what_the_scheduler_knows_no_more_is_not_shown(
    slurm: SlurmTools, watched: Watched
) -> None:
    remember()
    await coming(lambda: watched.shown)
    slurm.state = "FORGOTTEN"
    await coming(lambda: not watched.shown)


async def test_every_launch_has_its_turn(slurm: SlurmTools, watched: Watched) -> None:
    remember(cluster="slurm-1")
    remember(cluster="slurm-2")
    remember(cluster="slurm-3")
    await coming(lambda: len(watched.shown) == 3)
    assert [one.cluster for one in watched.shown] == ["slurm-3", "slurm-2", "slurm-1"]
    slurm.state = "RUNNING"
    await coming(lambda: {one.state for one in watched.shown} == {"running"})


async def test_one_question_serves_all_pages_and_a_slow_answer_delays_none(
    slurm: SlurmTools, tmp_path: Path, agents: Elsewhere
) -> None:
    answer = tmp_path / "answer"
    asked = held(tmp_path / "slurm" / "squeue", f'[ -e "{answer}" ]')
    remember()
    agent = agents.agent("node1", cluster=CLUSTER)
    pages: list[list[dict[str, Any]]] = [[], []]
    with Cluster(CLUSTER, addresses=[agent.where]) as cluster:
        updates = PageUpdates(cluster)
        for page in pages:
            updates.listen(lambda message, page=page: page.append(msgspec.json.decode(message)))
        await coming(asked.exists)
        agents.do(put_job, agent, 0, JOB)
        await coming(lambda: all(any(m["kind"] == "job" for m in page) for page in pages))
        assert len(asked.read_text().split()) == 1
        assert "waiting" not in msgspec.json.decode(updates.greeting("", 0)[0])
        answer.touch()
        await coming(lambda: all(any(m["kind"] == "waiting" for m in page) for page in pages))
        assert msgspec.json.decode(updates.greeting("", 0)[0])["waiting"][0]["cluster"] == NAME
        await updates.close()
        updates.clusters.close()


async def test_the_job_of_an_allocation_is_one_like_any_other(
    slurm: SlurmTools, tmp_path: Path, agents: Elsewhere
) -> None:
    slurm.state = "RUNNING"
    own = agents.agent("node1", cluster=CLUSTER)
    slot = agents.agent("slurm-0", cluster="lab")
    agents.do(put_job, slot, 0, JOB)
    directory = tmp_path / "allocation"
    (directory / "slurm-0").mkdir(parents=True)
    id_, addresses = NodeId(slot.node_id), (slot.where,)
    write_slot(directory, SlotFile("slurm-0", id_, addresses, "host", "up", 0.0))
    remember(JOB, cluster="lab", directory=directory)
    with Cluster(CLUSTER, addresses=[own.where]) as cluster:
        updates = PageUpdates(cluster)
        updates.listen(lambda _: None)
        await coming(lambda: updates.job(JOB) is not None)
        assert updates.clusters.of_job(JOB).name == "lab"
        assert updates.feed(JOB) is not None
        await coming(lambda: [entry.name for entry in updates.nodes] == ["node1"])
        await updates.close()
        updates.clusters.close()


async def test_what_is_used_without_a_launch_waits_only_while_it_has_no_nodes(
    slurm: SlurmTools, watched: Watched
) -> None:
    remember()
    await coming(lambda: watched.shown)
    slurm.state = "RUNNING"
    await coming(lambda: watched.shown[0].state == "running")
    AllocationBook().used(NAME)
    await coming(lambda: not watched.shown)
    watched.told.clear()
    remember(cluster="slurm-later")
    await coming(lambda: {one.cluster for one in watched.told} >= {"slurm-later"})
    number = len(watched.told)
    await coming(lambda: len(watched.told) > number + 6)
    assert {one.cluster for one in watched.told} == {"slurm-later"}
    AllocationBook().forget("slurm-later")
    slurm.state = "PENDING"
    await coming(lambda: watched.shown)
    assert watched.shown[0].job_id is None


async def test_a_launch_that_became_a_job_does_not_wait_for_nodes_to_go_on(
    slurm: SlurmTools, anyio_backend: str
) -> None:
    remember(cluster="slurm-other")
    remember()  # is asked about first
    watched = Watched()

    def launched() -> None:
        note = AllocationBook().of_cluster(NAME)
        if watched.shown and note is not None and not note.jobs:
            slurm.state = "RUNNING"
            AllocationBook().launched(NAME, JOB)

    watched.happens = launched
    watched.launches.begin()
    await coming(lambda: NAME in watched.opened)
    assert watched.told
    assert not [one for one in watched.told if one.job_id]
    await watched.launches.close()


async def test_what_a_scheduler_has_not_answered_does_not_delay_the_end_of_a_server(
    slurm: SlurmTools, tmp_path: Path
) -> None:
    asked = held(tmp_path / "slurm" / "squeue", "false")
    before = set(threading.enumerate())
    slurm.state = "RUNNING"
    remember(JOB)
    watched = Watched()
    watched.launches.begin()
    await coming(lambda: asked.exists() and asked.read_text())
    await watched.launches.close()
    await coming(lambda: not [one for one in since(before) if "mntrain-slurm" in one.name])
    with pytest.raises(ProcessLookupError):
        os.kill(int(asked.read_text()), 0)
    assert not watched.opened


def since(before: set[threading.Thread]) -> set[threading.Thread]:
    return set(threading.enumerate()) - before


class NoClusters:
    """A canceled launch without a job needs none."""

    def find(self, text: str) -> None:
        raise AssertionError(text)


@pytest.fixture
def cancel() -> Callable[[], None]:
    clusters: Any = NoClusters()
    return lambda: cancel_launch(clusters, NAME, "canceled by a test")


def test_a_launch_that_waits_is_canceled(slurm: SlurmTools, cancel: Callable[[], None]) -> None:
    remember()
    cancel()
    assert slurm.state == "CANCELLED"
    assert AllocationBook().of_cluster(NAME) is None
    with pytest.raises(RequestRefusedError) as refused:
        cancel()
    assert refused.value.status_code == 404


def test_a_job_that_has_its_nodes_is_not_canceled_so(
    slurm: SlurmTools, cancel: Callable[[], None]
) -> None:
    slurm.state = "RUNNING"
    remember(JOB)
    with pytest.raises(RequestRefusedError) as refused:
        cancel()
    assert refused.value.status_code == 409
    assert slurm.state == "RUNNING"


def test_nodes_that_are_used_without_a_launch_are_not_given_back_by_a_page(
    slurm: SlurmTools, cancel: Callable[[], None]
) -> None:
    remember()
    AllocationBook().used(NAME)
    slurm.state = "RUNNING"
    with pytest.raises(RequestRefusedError) as refused:
        cancel()
    assert refused.value.status_code == 409
    assert slurm.state == "RUNNING"
    slurm.state = "PENDING"
    cancel()
    assert slurm.state == "CANCELLED"
    assert AllocationBook().of_cluster(NAME) is not None, "what ran on them is still to be read"


@pytest.mark.parametrize("jobs", [(), (JOB,)])
def test_a_silent_scheduler_is_named_to_who_cancels(
    slurm: SlurmTools, cancel: Callable[[], None], jobs: tuple[str, ...]
) -> None:
    remember(*jobs)
    slurm.state = "SILENT"
    with pytest.raises(RefusedError) as refused:
        cancel()
    assert refused.value.kind is Kind.NO_SCHEDULER
    assert AllocationBook().of_cluster(NAME) is not None
