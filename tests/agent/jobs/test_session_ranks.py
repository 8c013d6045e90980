"""Which jobs a session forks processes for; what its ranks are asked, and their silence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.agent.attempt.directory import AttemptDirectory
from jupyter_mntrain.agent.jobs import session_ranks
from jupyter_mntrain.agent.jobs.session_ranks import forks_for, relayed
from jupyter_mntrain.model.records.job import SESSION, JobRecord
from jupyter_mntrain.model.records.session import (
    Done,
    Event,
    Follow,
    Request,
    Run,
    SessionRequest,
    Silent,
    frame,
    frames,
    request_decoder,
)
from jupyter_mntrain.telemetry.session_socket import (
    forking_python,
    forkserver_socket,
    short_path,
    socket_of,
)
from tests.standin.jobs import place, record
from tests.waiting import coming


@pytest.fixture
def session(tmp_path: Path) -> JobRecord:
    offered = forking_python(tmp_path / "metrics")
    offered.parent.mkdir()
    forkserver_socket(tmp_path / "metrics").touch()
    command = {"argv": ["python"], "environment": {"HF_HOME": "/models", "RANK": "0"}}
    (tmp_path / "command.json").write_text(json.dumps(command))
    return record(0, "running", spec={"entry": ("-m", SESSION)})


@pytest.mark.parametrize(
    ("environment", "is_forked"),
    [
        ({"HF_HOME": "/models"}, True),
        ({"HF_HOME": "/models", "SCALE": "2", "PYTHONPATH": "src", "NCCL_DEBUG": "INFO"}, True),
        ({"HF_HOME": "/models", "TORCHELASTIC_RUN_ID": "j-1", "TORCH_FR_DUMP": "1"}, True),
        ({}, False),
        ({"HF_HOME": "/elsewhere"}, False),
        ({"HF_HOME": "/models", "PYTHONHASHSEED": "0"}, False),
        ({"HF_HOME": "/models", "LD_PRELOAD": "libjemalloc.so"}, False),
        ({"HF_HOME": "/models", "TORCH_LOGS": "+dynamo"}, False),
    ],
)
def test_only_what_is_read_later_may_differ(
    session: JobRecord, tmp_path: Path, environment: dict[str, str], is_forked: bool
) -> None:
    attempt = AttemptDirectory(tmp_path, session.job_id, 1)
    found = forks_for(session, attempt, environment)
    assert found == (forking_python(tmp_path / "metrics") if is_forked else None)


def test_without_a_session_that_runs_nothing_is_forked(session: JobRecord, tmp_path: Path) -> None:
    environment = {"HF_HOME": "/models"}
    attempt = AttemptDirectory(tmp_path, session.job_id, 1)
    over = msgspec.structs.replace(
        session, part=msgspec.structs.replace(session.part, state="succeeded")
    )
    assert forks_for(over, attempt, environment) is None
    assert forks_for(record(0, "running"), attempt, environment) is None
    (tmp_path / "command.json").write_text("{")
    assert forks_for(session, attempt, environment) is None
    forkserver_socket(tmp_path / "metrics").unlink()
    assert forks_for(session, attempt, environment) is None


@asynccontextmanager
async def rank_at(
    path: Path, answer: Callable[[Request], Event | None]
) -> AsyncIterator[list[Request]]:
    """A rank's socket, and what it is asked. Without an answer it keeps the connection."""
    asked: list[Request] = []
    hung_up: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4), "big")
        asked.append(request_decoder.decode(await reader.readexactly(size)))
        if (event := answer(asked[-1])) is not None:
            writer.write(frame(event))
        else:
            await reader.read()  # until the agent hangs up
        writer.close()
        hung_up.append(writer)

    path.parent.mkdir(exist_ok=True)
    with short_path(path) as short:
        async with await asyncio.start_unix_server(serve, short):
            yield asked
            await coming(lambda: len(hung_up) == len(asked))


async def events_of(request: SessionRequest, metrics: Path, count: int) -> list[Event]:
    """The first so many."""
    found: list[Event] = []
    data = bytearray()
    job = record(0, "running", places=(place("node1", 0, 0, nproc=2),))
    async with aclosing(relayed(request, job, metrics)) as blocks:
        async for block in blocks:
            data += block
            found += frames(data)
            if len(found) >= count:
                break
    return found


@pytest.mark.anyio
async def test_each_rank_is_asked_for_what_has_not_arrived_from_it(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics"
    run = Run(3, "1")
    async with AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(
                rank_at(socket_of(metrics, rank), lambda _, rank=rank: Done(rank, 9, "ok", 0.1))
            )
            for rank in (0, 1)
        ]
        await events_of(SessionRequest(1, (0, 1), run, {1: 7}), metrics, 2)
    assert (first, second) == ([run], [Follow(3, 7)])


@pytest.mark.anyio
async def test_a_rank_that_does_not_answer_is_said_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_ranks, "ANSWER_S", 0.02)
    metrics = tmp_path / "metrics"
    async with rank_at(socket_of(metrics, 0), lambda _: None):
        found = await events_of(SessionRequest(1, (0,), Run(3, "1")), metrics, 3)
    assert [(one.rank, one.has_ended) for one in found if isinstance(one, Silent)] == 3 * [
        (0, False)
    ]
    (ended,) = await events_of(SessionRequest(1, (0,), Run(3, "1")), metrics, 1)
    assert isinstance(ended, Silent)
    assert ended.has_ended
