"""Session ranks: passes a driver's request to ranks of this node, and their events back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

from jupyter_mntrain.agent.attempt.directory import AttemptDirectory
from jupyter_mntrain.agent.attempt.processes import metrics_of
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.job import TERMINAL, JobRecord
from jupyter_mntrain.model.records.session import (
    Follow,
    Run,
    SessionRequest,
    Silent,
    frame,
    frame_ends,
)
from jupyter_mntrain.telemetry.session_socket import (
    forking_python,
    forkserver_socket,
    short_path,
    socket_of,
)

ANSWER_S: Final = 5.0
"""A rank that says nothing for this long holds the interpreter's lock: while a cell runs, its other
threads say every second that it does."""
HOLDS_LOCK: Final = "it does not answer: its process computes in C and holds Python's lock"
HELD_BYTES: Final = 2**20
"""Of events that the driver has not read yet, for each rank."""


_READ_AT_IMPORT: Final = re.compile(
    r"PYTHON(?!PATH$|UNBUFFERED$)|LD_|LC_|LANG$|OPENBLAS_|KMP_|GOMP_|MKL_|MALLOC_|GLIBC_TUNABLES"
    r"|HF_|HUGGINGFACE_|TRANSFORMERS_|TOKENIZERS_|ACCELERATE_|USE_|TORCH(?!ELASTIC_|_NCCL_|_FR_|_DISTRIBUTED_DEBUG$)"
)
"""Variables that Python, torch or transformers read when they begin."""


def forks_for(
    session: JobRecord, attempt: AttemptDirectory, environment: Mapping[str, str]
) -> Path | None:
    """Return the interpreter with which a session forks a job's processes.

    Args:
        attempt: the session's.
        environment: of the job's ranks.

    Returns:
        ``None`` if the session is over or still imports, or if they would not be as processes of
        their own are.
    """
    metrics, theirs = metrics_of(attempt.path), attempt.environment
    is_ready = forkserver_socket(metrics).exists()
    is_over = session.part.state in TERMINAL
    if is_over or not session.spec.is_session or not is_ready or theirs is None:
        return None
    for name in {*environment, *theirs}:
        if _READ_AT_IMPORT.match(name) and environment.get(name) != theirs.get(name):
            return None
    return forking_python(metrics)


def refuse_session(request: SessionRequest, record: JobRecord) -> None:
    """Check that the ranks run a session.

    Raises:
        RefusedError: they do not, or it is over.
    """
    part, job_id = record.part, record.job_id
    if not record.spec.is_session:
        raise RefusedError(
            f"job {job_id} is no session: it runs no cells",
            fix="start one: mntrain session start",
            node=part.node,
        )
    if part.state in TERMINAL or request.attempt != record.attempt.number:
        raise RefusedError(
            f"the session {job_id} is over",
            fix="start another one: mntrain session start",
            node=part.node,
        )


async def relayed(
    request: SessionRequest, record: JobRecord, metrics: Path
) -> AsyncIterator[bytes]:
    """Yield the frames of all ranks as they come; ends when each has said its last.

    A rank that does not answer is said by a :class:`Silent`; while a cell runs, again and again:
    the driver hears this node by it.
    """
    local = {int(one.rank): place for place, one in enumerate(record.part.ranks)}
    events: asyncio.Queue[bytes | None] = asyncio.Queue(64)
    ranks = [rank for rank in request.ranks if rank in local]
    tasks = [
        asyncio.create_task(_relay(rank, socket_of(metrics, local[rank]), request, events))
        for rank in ranks
    ]
    try:
        left = len(tasks)
        while left:
            block = await events.get()
            if block is None:
                left -= 1
            else:
                yield block
    finally:
        for task in tasks:
            task.cancel()


async def _relay(
    rank: int, path: Path, request: SessionRequest, events: asyncio.Queue[bytes | None]
) -> None:
    asked = request.request
    if isinstance(asked, Run | Follow) and rank in request.after:
        asked = Follow(asked.cell, request.after[rank])
    try:
        with short_path(path) as short:
            reader, writer = await asyncio.open_unix_connection(short, limit=HELD_BYTES)
        try:
            writer.write(frame(asked))
            await asyncio.wait_for(writer.drain(), ANSWER_S)
            await _pass_on(rank, reader, events, is_long=isinstance(asked, Run | Follow))
        finally:
            writer.close()
    except FileNotFoundError:
        await events.put(frame(Silent(rank, "it is still starting")))
    except TimeoutError:
        await events.put(frame(Silent(rank, HOLDS_LOCK)))
    except (OSError, ValueError):
        await events.put(frame(Silent(rank, "its process has ended", has_ended=True)))
    finally:
        await events.put(None)


async def _pass_on(
    rank: int, reader: asyncio.StreamReader, events: asyncio.Queue[bytes | None], *, is_long: bool
) -> None:
    """Pass whole frames on until the rank closes the connection.

    Raises:
        ValueError: what it sends is no frame.
    """
    data = bytearray()
    while True:
        try:
            piece = await asyncio.wait_for(reader.read(HELD_BYTES), ANSWER_S)
        except TimeoutError:
            await events.put(frame(Silent(rank, HOLDS_LOCK)))
            if not is_long:
                return
            continue
        if not piece:
            return
        data += piece
        if end := max(frame_ends(data), default=0):
            await events.put(bytes(data[:end]))
            del data[:end]
