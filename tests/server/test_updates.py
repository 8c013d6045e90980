"""Page updates, job feed and a page's queue, without a server."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.server import updates as updates_module
from jupyter_mntrain.server.cluster_opening import ClusterOpening
from jupyter_mntrain.server.handlers import events
from jupyter_mntrain.server.series_feed import JobFeed
from jupyter_mntrain.server.updates import PageUpdates
from tests.server.conftest import CLUSTER, put_job
from tests.standin.elsewhere import Elsewhere
from tests.waiting import coming

pytestmark = pytest.mark.anyio

JOB = JobId("j-00000042")


@pytest.fixture
def agents() -> Iterator[Elsewhere]:
    elsewhere = Elsewhere(itertools.repeat("127.0.0.1"))
    yield elsewhere
    elsewhere.close()


@pytest.fixture
async def new_opening(anyio_backend: str) -> AsyncIterator[Callable[..., ClusterOpening]]:
    made: list[ClusterOpening] = []

    def new(connect: Callable[[], Cluster]) -> ClusterOpening:
        made.append(ClusterOpening("lab", connect))
        return made[-1]

    yield new
    for one in made:
        await one.close()


def two_nodes(agents: Elsewhere) -> tuple[list[Any], Callable[[], Cluster]]:
    both = [agents.agent(f"node{number}", cluster=CLUSTER) for number in (1, 2)]
    for number, agent in enumerate(both):
        agents.do(put_job, agent, number, JOB)
        agents.do(agent.steps, JOB, number, range(1, 11))
    return both, lambda: Cluster(CLUSTER, addresses=[agent.where for agent in both])


def threads() -> set[threading.Thread]:
    return set(threading.enumerate())


async def test_nothing_runs_before_the_first_who_asks_nor_after_the_end(agents: Elsewhere) -> None:
    both, connect = two_nodes(agents)
    before = threads()
    opening = ClusterOpening("lab", connect)
    assert threads() == before
    one, two = await asyncio.gather(opening.updates(), opening.updates())
    assert one is two
    await coming(lambda: all(agent._listeners for agent in both))
    await opening.close()
    await coming(lambda: not any(agent._listeners for agent in both))
    await coming(lambda: not {t for t in threads() - before if t.is_alive()})


async def test_an_opening_that_failed_is_tried_again(
    agents: Elsewhere, new_opening: Callable[..., ClusterOpening]
) -> None:
    _, connect = two_nodes(agents)
    outcomes: list[Callable[[], Cluster]] = [wrong_name, connect]

    def next_outcome() -> Cluster:
        return outcomes.pop(0)()

    opening = new_opening(next_outcome)
    with pytest.raises(SpecError):
        await opening.updates()
    assert isinstance(await opening.updates(), PageUpdates)


async def test_requests_of_one_kind_keep_no_other_kind_waiting(
    agents: Elsewhere, new_opening: Callable[..., ClusterOpening]
) -> None:
    opening = new_opening(two_nodes(agents)[1])
    answered = threading.Event()
    slow = [asyncio.create_task(opening.work("add", answered.wait)) for _ in range(100)]
    try:
        for kind in ("logs", "stop", "launch"):
            assert await asyncio.wait_for(opening.work(kind, lambda: True), 20)
        assert not any(task.done() for task in slow)
    finally:
        answered.set()
    assert all(await asyncio.gather(*slow))


def wrong_name() -> Cluster:
    raise SpecError("no such name")


def ignore(message: bytes) -> None:
    """A page that is open and does nothing."""


def changes_of(cluster: Cluster) -> Callable[[], int]:
    """How many changes the cluster has told of since now."""
    told: list[None] = []
    cluster.subscribe(lambda: told.append(None))
    return lambda: len(told)


async def test_nothing_is_derived_while_no_page_is_open(
    agents: Elsewhere, new_opening: Callable[..., ClusterOpening], monkeypatch: pytest.MonkeyPatch
) -> None:
    both, connect = two_nodes(agents)
    updates = await new_opening(connect).updates()
    await coming(lambda: (entry := updates.job(JOB)) and entry.numbers.step == 10)
    await asyncio.sleep(2 * updates_module.ROUND_S)  # a round that had begun ends
    looked: list[JobFeed] = []
    look = JobFeed.look

    def counted(feed: JobFeed, now_s: float | None = None) -> None:
        looked.append(feed)
        look(feed, now_s)

    monkeypatch.setattr(JobFeed, "look", counted)
    before, changes = updates._seq, changes_of(updates.cluster)
    for number, agent in enumerate(both):
        agents.do(agent.steps, JOB, number, range(11, 21))
    await coming(lambda: changes() >= 20)
    assert (updates._seq, looked) == (before, [])
    # Whoever asks is told the present state.
    await coming(lambda: (entry := updates.job(JOB)) and entry.numbers.step == 20)
    updates.listen(ignore)
    seen = len(looked)
    await coming(lambda: len(looked) > seen + 1 and updates._seq > before + 4)
    updates.forget(ignore)


async def test_rows_that_nobody_asks_for_are_taken_now_and_then(
    agents: Elsewhere, new_opening: Callable[..., ClusterOpening], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates_module, "UNSEEN_ROUND_S", 0.05)
    _, connect = two_nodes(agents)
    updates = await new_opening(connect).updates()
    await coming(lambda: JOB in updates._feeds and updates._feeds[JOB].numbers)


async def test_a_page_away_for_too_long_gets_everything(
    agents: Elsewhere, new_opening: Callable[..., ClusterOpening], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates_module, "MOST_KEPT", 3)
    updates = await new_opening(two_nodes(agents)[1]).updates()
    updates.listen(ignore)
    await coming(lambda: updates._seq >= 6)
    kinds = [
        msgspec.json.decode(m)["kind"] for m in updates.greeting(updates.stream, updates._seq - 3)
    ]
    assert kinds[0] == "resumed"
    assert len(kinds) == 4
    old = [
        msgspec.json.decode(m)["kind"] for m in updates.greeting(updates.stream, updates._seq - 4)
    ]
    assert old == ["snapshot"]


async def test_a_feed_sends_each_watcher_what_it_has_not_had(
    agents: Elsewhere, new_opening: Callable[..., ClusterOpening]
) -> None:
    both, connect = two_nodes(agents)
    updates = await new_opening(connect).updates()
    await coming(lambda: updates.job(JOB))
    feed = JobFeed(updates.cluster.known_job(JOB), "stream")
    early: list[JobSeries] = []
    late: list[JobSeries] = []
    feed.look()
    feed.watch(early.append, "", 0)

    def has_all(count: int) -> bool:
        feed.look()
        feed.send()
        ranks = feed.series("", 0, None).ranks
        return [tuple(rank.step)[-1:] for rank in ranks] == [(count,), (count,)]

    await coming(lambda: has_all(10))
    feed.watch(late.append, early[-1].stream, early[-1].seq)
    assert not late[0].job.step
    sent = len(early)
    feed.look()
    feed.send()
    assert len(early) == sent, "nothing new, nothing sent"
    feed.unwatch(early.append)
    for number, agent in enumerate(both):
        agents.do(agent.steps, JOB, number, range(11, 12))

    def has_new() -> bool:
        feed.look()
        feed.send()
        return any(11.0 in series.job.step for series in late)

    await coming(has_new)
    assert all(before.seq == after.since for before, after in itertools.pairwise(late))


@pytest.mark.slow
async def test_the_rows_of_a_job_that_has_ended_are_forgotten_but_not_where_it_stood(
    agents: Elsewhere, new_opening: Callable[..., ClusterOpening], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates_module, "RELEASED_AFTER_S", 0.0)
    both, connect = two_nodes(agents)
    updates = await new_opening(connect).updates()
    updates.listen(ignore)
    await coming(lambda: updates.job(JOB))
    rows: list[JobSeries] = []
    unwatch = updates.watch(JOB, rows.append, "", 0)
    for agent in both:
        agents.do(agent.finish, JOB)
    await coming(lambda: updates._feeds[JOB].is_over)
    await asyncio.sleep(2 * updates_module.ROUND_S)
    assert JOB in updates._feeds, "a page still watches it"
    unwatch()
    await coming(lambda: JOB not in updates._feeds)
    assert updates.cluster._driver._followers == {}
    entry = updates.job(JOB)
    assert entry is not None
    assert (entry.state, entry.numbers.step) == ("succeeded", 10)
    assert [rank.step for part in entry.parts for rank in part.ranks] == [10, 10]
    # Watched again, all of it comes again, under numbers of its own.
    before = rows[-1].stream
    rows.clear()
    updates.watch(JOB, rows.append, before, 10_000)
    await coming(lambda: sum(len(series.job.step) for series in rows) == 10)
    assert before not in {series.stream for series in rows if series.job.step}


@pytest.mark.slow
async def test_a_job_that_ended_before_anybody_looked_shows_where_it_stood(
    agents: Elsewhere, new_opening: Callable[..., ClusterOpening]
) -> None:
    both, connect = two_nodes(agents)
    for agent in both:
        agents.do(agent.finish, JOB)
    updates = await new_opening(connect).updates()
    await coming(lambda: (entry := updates.job(JOB)) and entry.numbers.step == 10)


class Deaf(events.Events):
    """A page that never reads: what is written to it stays where it is."""

    def __init__(self, updates: Any) -> None:
        # Without a request: nothing of Tornado's is used but ``write_message``.
        self._updates = updates
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._is_resyncing = False
        self._is_sending = False
        self._watched: dict[JobId, Callable[[], None]] = {}
        self.reads = asyncio.Event()
        self.written: list[dict[str, Any]] = []

    async def write_message(self, message: Any, binary: bool = False) -> None:  # type: ignore[override]
        await self.reads.wait()
        self.written.append(msgspec.json.decode(message))


@pytest.mark.slow
async def test_a_page_that_does_not_read_gets_everything_anew(
    agents: Elsewhere, new_opening: Callable[..., ClusterOpening], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_WAITING", 5)
    updates = await new_opening(two_nodes(agents)[1]).updates()
    await coming(lambda: updates.job(JOB))
    page = Deaf(updates)
    page.on_message(msgspec.json.encode({"kind": "watch", "job_id": JOB}))
    updates.listen(page._queue)
    begin = updates._seq
    await coming(lambda: updates._seq > begin + 30)
    assert len(page._waiting) <= 5
    page.reads.set()
    await coming(lambda: any(m["kind"] == "snapshot" for m in page.written))
    await coming(lambda: page.written[-1].get("seq", 0) > updates._seq - 2)
    at = max(n for n, m in enumerate(page.written) if m["kind"] == "snapshot")
    numbers = [m["seq"] for m in page.written[at:] if m["kind"] != "series"]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert any(m["kind"] == "series" for m in page.written[at:]), "what it watches is sent again"
    updates.forget(page._queue)


@pytest.mark.slow
async def test_a_page_that_does_not_read_and_watches_a_job_that_is_gone_stops_nobody(
    agents: Elsewhere, new_opening: Callable[..., ClusterOpening], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_WAITING", 5)
    both, connect = two_nodes(agents)
    updates = await new_opening(connect).updates()
    await coming(lambda: updates.job(JOB))
    page = Deaf(updates)
    page.on_message(msgspec.json.encode({"kind": "watch", "job_id": JOB}))
    updates.listen(page._queue)
    for agent in both:
        agents.do(agent.die)
        agents.do(agent.jobs.clear)
        agents.do(agent.start)
    await coming(lambda: updates.job(JOB) is None)
    begin = updates._seq
    await coming(lambda: updates._seq > begin + 10)
    assert not updates._task.done()
    page.reads.set()
    await coming(lambda: page.written and page.written[-1]["kind"] == "heartbeat")
    assert {m["problem"]["kind"] for m in page.written if m["kind"] == "problem"} <= {"no-such-job"}
    updates.forget(page._queue)


async def test_who_asks_for_everything_while_being_told_is_not_behind(
    agents: Elsewhere, new_opening: Callable[..., ClusterOpening]
) -> None:
    both, connect = two_nodes(agents)
    updates = await new_opening(connect).updates()
    await coming(lambda: updates.job(JOB))
    heard: list[tuple[bool, str]] = []

    def tell(message: bytes) -> None:
        told = msgspec.json.decode(message)
        snapshot = msgspec.json.decode(updates.greeting("", 0)[0])
        if told["kind"] == "job":
            heard.append((told["job"] in snapshot["jobs"], told["job"]["state"]))

    updates.listen(tell)
    for agent in both:
        agents.do(agent.finish, JOB)
    await coming(lambda: heard and heard[-1][1] == "succeeded")
    assert all(is_in for is_in, _ in heard)
    updates.forget(tell)
