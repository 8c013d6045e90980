"""Sessions: ranks that stay on the nodes, and run cells."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.cluster.rank_session import RankSession, Waiting
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.model.records.session import PROGRAM, Done, Shown, State, Text
from tests.waiting import until


@pytest.fixture
def session(cluster: Cluster) -> Iterator[RankSession]:
    nodes = tuple(Participant(node=node.name) for node in cluster.nodes())
    job = cluster.launch(JobSpec(entry=("-m", PROGRAM), participants=nodes))
    session = job.session()

    def is_ready() -> bool:
        return all(isinstance(one, State) for one in session.states().values())

    until(is_ready)
    yield session
    job.stop()
    job.wait()


def ended(events: list[object]) -> dict[int, Done]:
    return {one.rank: one for one in events if isinstance(one, Done)}


def texts(events: list[object], rank: int) -> str:
    return "".join(one.text for one in events if isinstance(one, Text) and one.rank == rank)


@pytest.mark.slow
@pytest.mark.agents
def test_cells_keep_their_state_and_find_the_group_ready(session: RankSession) -> None:
    first = list(session.run("x = torch.ones(2) * (rank + 1); dist.all_reduce(x); x"))
    assert {one.end for one in ended(first).values()} == {"ok"}
    shown = [one.data["text/plain"] for one in first if isinstance(one, Shown)]
    assert shown == ["tensor([3., 3.])"] * 2
    second = list(session.run("print(rank, x[0].item(), await asyncio_()) "))
    assert {one.error for one in ended(second).values()} == {"NameError"}
    third = list(session.run("print(rank, x[0].item())", [1]))
    assert texts(third, 1) == "1 3.0\n"
    assert [*ended(third)] == [1]
    with pytest.raises(SpecError):
        session.run("1", [7])


@pytest.mark.slow
@pytest.mark.agents
def test_ranks_that_wait_for_others_are_named_and_can_be_interrupted(session: RankSession) -> None:
    events: list[object] = []

    def run() -> None:
        for event in session.run("if rank == 0:\n    dist.all_reduce(torch.ones(1))"):
            events.append(event)  # noqa: PERF402 - the others look meanwhile

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: any(isinstance(one, Waiting) for one in events))
    (waiting,) = (one for one in events if isinstance(one, Waiting))
    assert str(waiting) == (
        "rank 0 waits in all_reduce in line 2 for rank 1, which has ended the cell"
    )
    session.interrupt()
    thread.join()
    assert {rank: one.end for rank, one in ended(events).items()} == {0: "interrupted", 1: "ok"}
    after = list(session.run("y = torch.ones(1); dist.all_reduce(y); int(y)"))
    assert {one.end for one in ended(after).values()} == {"ok"}
