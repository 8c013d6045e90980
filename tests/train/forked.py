"""Forked processes: start at once, because their parent has already imported the trainer.

They are real ones, with a pid of their own to kill; only the seconds of importing are saved.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_mntrain.agent.machine.ports import PortHolder
from jupyter_mntrain.model.environment import (
    CHECKPOINT_VARIABLE,
    METRICS_VARIABLE,
    NODE_VARIABLE,
    RUN_ATTEMPT_VARIABLE,
)

if TYPE_CHECKING:
    from torch.multiprocessing import ProcessContext

    from jupyter_mntrain.train.world import World

_MEETING_TIMEOUT_S = 300.0
"""The longest training of a rank that others wait for, times the machine's other load."""

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "jupyter_mntrain.train.__main__",
        "jupyter_mntrain.train.loop",
        *(
            f"transformers.models.{one}.modeling_{one}"
            for one in ("llama", "mistral", "qwen2", "qwen3")
        ),
    ]
)


def begin(
    function: Callable[..., None],
    *arguments: Any,
    environment: Mapping[str, str],
    log: Path,
    errors: Path | None = None,
    directory: Path | None = None,
) -> BaseProcess:
    """Call a function of a module in a process of its own.

    Args:
        environment: all of it.
        log: gets what the process says.
        errors: gets what it says on stderr, if that is to be apart.
        directory: where it works.
    """
    files = (log, errors or log)
    process = CONTEXT.Process(
        target=_call, args=(function, arguments, dict(environment), files, directory), daemon=True
    )
    process.start()
    return process


@contextlib.contextmanager
def two_ranks(words: Sequence[str], directory: Path, attempt: int) -> Iterator[list[BaseProcess]]:
    """Two ranks of the trainer, each a node with a disk in ``directory``; none is left behind.

    Args:
        words: after ``python -m jupyter_mntrain.train``.
        directory: gets ``rank-0.ndjson`` and so on in ``attempt-N``.
    """
    metrics = directory / f"attempt-{attempt}"
    metrics.mkdir(parents=True)
    held = PortHolder.hold("127.0.0.1", 0, "here")
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(held.port), "WORLD_SIZE": "2"}
    shared |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "LOCAL_RANK": "0"}
    shared |= {METRICS_VARIABLE: str(metrics), RUN_ATTEMPT_VARIABLE: str(attempt)}
    ranks = []
    for rank, node in enumerate("ab"):
        own = {"RANK": str(rank), NODE_VARIABLE: node}
        own |= {CHECKPOINT_VARIABLE: str(directory / f"disk-{node}")}
        log = metrics / f"rank-{rank}.log"
        ranks.append(begin(train, list(words), environment=os.environ | shared | own, log=log))
    try:
        yield ranks
    finally:
        for process in ranks:
            process.kill()
            process.join()
        held.close()


@contextlib.contextmanager
def world_of(rank: int, size: int, store: Path) -> Iterator[World]:
    """The first ranks of processes that stay, as a world of their own.

    Args:
        store: a file that is not there yet, by which they meet.
    """
    import torch.distributed as dist

    from jupyter_mntrain.train.world import join_world

    dist.init_process_group(
        "gloo",
        init_method=store.as_uri(),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=_MEETING_TIMEOUT_S),
    )
    with join_world("cpu", _MEETING_TIMEOUT_S) as world:
        yield world
    dist.destroy_process_group()


def told_by(ranks: ProcessContext, ours: Connection) -> Iterator[Any]:
    """What ranks send, until all have ended.

    Raises:
        ProcessRaisedException: a rank did; the others, which may wait for it, are ended.
    """
    with contextlib.suppress(EOFError):
        while True:
            if ours in wait([ours, *ranks.sentinels]):
                yield ours.recv()
            elif ranks.join(timeout=0.0):
                return
    while not ranks.join():
        pass


def kill(process: BaseProcess) -> None:
    """SIGKILL, by pid, and gone."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def train(words: list[str]) -> None:
    """``python -m jupyter_mntrain.train`` with these words."""
    from jupyter_mntrain.train.__main__ import _leave, main

    _leave(main(words))


def _call(
    function: Callable[..., None],
    arguments: Sequence[Any],
    environment: dict[str, str],
    files: tuple[Path, Path],
    directory: Path | None,
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(files, start=1):
        with path.open("ab") as file:
            os.dup2(file.fileno(), number)
    if directory is not None:
        os.chdir(directory)
    function(*arguments)
