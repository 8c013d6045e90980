"""Notices: what the address of a job is told, and how often."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from jupyter_mntrain.agent.gang import notices
from jupyter_mntrain.agent.gang.notices import Notices, channels_of
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.model.environment import WEBHOOK_VARIABLE
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.telemetry.gpus import GpuReader
from tests.standin.jobs import record
from tests.standin.web_page import Listener
from tests.waiting import coming

BEGAN_S = 1_700_000_000.0
CAUSE = Problem(
    kind=Kind.OUT_OF_MEMORY,
    cause="CUDA out of memory",
    node="node1",
    rank=Rank(0),
    time_s=BEGAN_S,
)


@pytest.fixture
def listener(request) -> Iterator[Listener]:
    made = Listener(*getattr(request, "param", ()))
    yield made
    made.close()


def job_with(tmp_path, url: str | None, state="failed") -> LocalJob:
    environment = {} if url is None else {WEBHOOK_VARIABLE: url}
    known = record(0, state, spec={"environment": environment, "name": "llama"})
    return LocalJob(tmp_path, known, GpuReader())


def notices_of(job: LocalJob) -> Notices:
    return Notices(job, channels_of(job, job.directory))


async def sent(hook: Notices) -> None:
    while hook._sending:
        await next(iter(hook._sending))


@pytest.mark.anyio
async def test_an_end_is_told_once_with_its_cause_whoever_asks_again(tmp_path, listener):
    job = job_with(tmp_path, listener.url)
    parts = [job.record.part]
    for hook in (notices_of(job), notices_of(job)):  # the second: of an agent that began again
        hook.tell_end(parts)
        hook.tell_end(parts)
        await sent(hook)
    (told,) = listener.taken
    assert (told["event"], told["state"], told["job"]) == ("ended", "failed", job.record.job_id)
    assert told["text"] == told["content"]
    assert "llama" in told["text"]


@pytest.mark.anyio
async def test_a_stall_and_then_the_end_are_two_events(tmp_path, listener):
    job = job_with(tmp_path, listener.url)
    hook = notices_of(job)
    hook.tell_stall(CAUSE)
    await sent(hook)
    hook.tell_stall(CAUSE)
    hook.tell_end([job.record.part])
    await sent(hook)
    assert [one["event"] for one in listener.taken] == ["stalled", "ended"]
    first = listener.taken[0]
    assert (first["kind"], first["node"], first["rank"]) == (Kind.OUT_OF_MEMORY, "node1", 0)
    assert "CUDA out of memory" in first["text"]
    assert first["time"] == "2023-11-14T22:13:20+00:00"


@pytest.mark.anyio
async def test_each_stall_of_an_attempt_is_told_once_whatever_its_cause(tmp_path, listener):
    job = job_with(tmp_path, listener.url)
    other = replace(CAUSE, kind=Kind.NODE_LOST, node="node2")
    for hook in (notices_of(job), notices_of(job)):  # the second: of an agent that began again
        for stall in (CAUSE, other, CAUSE):
            hook.tell_stall(stall)
        await sent(hook)
    assert len(listener.taken) == 1
    hook.tell_stall(replace(other, time_s=job.now_s() + 60.0))  # it went on, and stalled again
    await sent(hook)
    assert [one["kind"] for one in listener.taken] == [Kind.OUT_OF_MEMORY, Kind.NODE_LOST]


@pytest.mark.anyio
async def test_a_notice_quotes_no_secret(tmp_path, listener):
    """A channel has many readers, and a cause quotes what a script raised."""
    job = job_with(tmp_path, listener.url)
    hook, hidden = notices_of(job), listener.url
    said = f"ValueError: password=hunter2 is wrong, posting to {hidden}"
    hook.tell_stall(Problem(kind=Kind.EXCEPTION, cause=said, node="node1"))
    await sent(hook)
    (told,) = listener.taken
    for secret in ("hunter2", hidden):
        assert secret not in str(told)
    assert (told["kind"], told["node"], told["event"]) == (Kind.EXCEPTION, "node1", "stalled")
    assert "is wrong" in told["text"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "listener", [(2, "refuses"), (2, "hangs"), (2, "closes")], indirect=True, ids=lambda one: one[1]
)
async def test_it_is_tried_again_and_the_address_is_never_logged(
    tmp_path, listener, monkeypatch, caplog
):
    monkeypatch.setattr(notices, "AGAIN_AFTER_S", 0.01)
    monkeypatch.setattr(notices, "TIMEOUT_S", 1.0)
    hook = notices_of(job_with(tmp_path, listener.url))
    with caplog.at_level("INFO", logger="mntrain.agent"):
        hook.tell_stall(CAUSE)
        await sent(hook)
    assert (listener.asked, len(listener.taken)) == (3, 1)
    assert [one.levelname for one in caplog.records] == ["WARNING", "WARNING", "INFO"]
    assert "127.0.0.1" in caplog.text
    assert "key=123" not in caplog.text


@pytest.mark.anyio
@pytest.mark.parametrize("url", ["http://127.0.0.1:9/hook?key=123", "http://no-such-host.invalid/"])
async def test_a_page_that_is_not_there_ends_nothing(tmp_path, monkeypatch, caplog, url):
    monkeypatch.setattr(notices, "AGAIN_AFTER_S", 0.01)
    hook = notices_of(job_with(tmp_path, url))
    hook.tell_stall(CAUSE)
    await sent(hook)
    assert len(caplog.records) == notices.TRIES
    assert hook._told.exists()
    assert "key=123" not in caplog.text


@pytest.mark.anyio
@pytest.mark.parametrize("listener", [(1, "hangs")], indirect=True)
async def test_an_agent_that_ends_while_it_tells_tells_again_when_it_is_back(tmp_path, listener):
    job = job_with(tmp_path, listener.url)
    ended = notices_of(job)
    ended.tell_stall(CAUSE)
    await coming(lambda: listener.asked)
    (task,) = ended._sending
    task.cancel()
    back = notices_of(job)
    back.tell_stall(CAUSE)
    await sent(back)
    assert len(listener.taken) == 1


@pytest.mark.anyio
async def test_without_an_address_nothing_is_stored_nor_sent(tmp_path):
    hook = notices_of(job_with(tmp_path, None))
    hook.tell_stall(CAUSE)
    assert not hook._sending
    assert not hook._told.exists()
