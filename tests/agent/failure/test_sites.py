"""Deadlock sites: real ranks hang in each of them, and are asked for their stacks."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from jupyter_mntrain.agent.failure.stacks import StackRequest, answers
from jupyter_mntrain.model.failure.diagnosis import diagnose
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.job import PartStatus, RankStack, Stall
from tests.waiting import until
from tests.wording import says

SCRIPT = Path(__file__).parents[1] / "programs" / "hanging.py"

pytestmark = pytest.mark.slow


class Hang(NamedTuple):
    """Where ranks 0 and 1 of ``programs/hanging.py`` sit, and what has to be said of that."""

    name: str
    sites: tuple[str | None, str | None]
    says: str
    fix: str
    kind: Kind = Kind.ALL_WAIT
    rank: int | None = None


HANGS = [
    Hang(
        "group",
        ("barrier", "new group"),
        "rank 1 on n1 creates a process group (new_group)",
        "have every rank call new_group for every group",
    ),
    Hang(
        "gather",
        ("gather", None),
        "rank 0 on n0 gathers from all ranks (all_gather)",
        "stuck there, or in an unusually long step",
        Kind.BUSY,
        1,
    ),
    Hang(
        "objects",
        ("gather", "barrier"),
        "rank 1 on n1 called barrier (seq 1), in objects (hanging.py:",
        "look for an `if rank == …`",
        Kind.COLLECTIVE_MISMATCH,
    ),
    Hang(
        "other_call",
        ("collective", "gather"),
        "rank 1 on n1 called all_gather (seq 2, 8x4 float32), in other_call (hanging.py:",
        "make the same calls in the same order",
        Kind.COLLECTIVE_MISMATCH,
    ),
    Hang(
        "other_shape",
        (None, "collective"),
        "but rank 0 on n0 all_reduce (seq 1, 0 float32)",
        "of the same shape and dtype",
        Kind.COLLECTIVE_MISMATCH,
    ),
    Hang(
        "skipped_call",
        ("barrier", "collective"),
        "rank 1 on n1 called all_reduce (seq 1, 3 int64), in skipped_call (hanging.py:",
        "look for an `if rank == …`",
        Kind.COLLECTIVE_MISMATCH,
    ),
    Hang(
        "barrier",
        ("barrier", "collective"),
        "rank 0 on n0 is in a barrier, in barrier (hanging.py:",
        "an error that one rank caught",
    ),
    Hang(
        "pipeline",
        (None, "pipeline"),
        "rank 1 on n1 waits for what a neighboring stage sends",
        "stuck there, or in an unusually long step",
        Kind.BUSY,
        0,
    ),
    Hang(
        "backward",
        ("collective", None),
        "rank 0 on n0 is in a collective",
        "stuck there, or in an unusually long step",
        Kind.BUSY,
        1,
    ),
    Hang(
        "receive",
        ("receive", "receive"),
        "all ranks wait for each other: each waits to receive",
        "have one of the two ranks send while the other receives",
    ),
    Hang(
        "send",
        ("send", "send"),
        "all ranks wait for each other: each waits to send",
        "have one of the two ranks receive while the other sends",
    ),
    Hang(
        "wait",
        ("exchange", "exchange"),
        "all ranks wait for each other: each waits for an exchange",
        "every send has a receive",
    ),
    Hang(
        "rendezvous",
        ("rendezvous", None),
        "rank 0 on n0 waits for the others to join (init_process_group)",
        "stuck there, or in an unusually long step",
        Kind.BUSY,
        1,
    ),
    Hang(
        "build",
        ("build", "build"),
        "waits for whoever builds a C++ extension",
        "torch_extensions/*/*/lock (or below $TORCH_EXTENSIONS_DIR), on n0 and n1",
        rank=0,
    ),
]

if Path("/dev/nvidiactl").exists():
    HANGS.append(
        Hang(
            "gpu",
            ("gpu", "gpu"),
            "all ranks wait for each other: each waits for its GPU",
            "set NCCL_DEBUG=INFO",
        )
    )


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory per hang, with the stacks of its ranks and their pids."""
    directory = tmp_path_factory.mktemp("hangs")
    for hang in HANGS:
        (directory / hang.name / "metrics").mkdir(parents=True)
    names = [hang.name for hang in HANGS]
    with subprocess.Popen([sys.executable, SCRIPT, directory, *names]) as parent:
        yield directory
        for child in psutil.Process(parent.pid).children(recursive=True):
            child.send_signal(signal.SIGKILL)
        parent.kill()


def stacks(directory: Path) -> list[RankStack]:
    pids = [directory / f"pid-{rank}" for rank in (0, 1)]
    if not all(path.exists() for path in pids):
        return []
    return answers(
        [StackRequest(directory, Rank(r), int(p.read_text())) for r, p in enumerate(pids)]
    )


def diagnosis(found: list[RankStack]) -> Problem | None:
    return diagnose(
        [
            PartStatus(
                node_id=NodeId(f"{number:032x}"),
                node=f"n{number}",
                state="running",
                stall=Stall(since_s=1.0, limit_s=10.0, step=3, stacks=(stack,)),
            )
            for number, stack in enumerate(found)
        ]
    )


@pytest.mark.parametrize("hang", HANGS, ids=lambda hang: hang.name)
def test_where_ranks_hang_is_known_and_explained(hanging: Path, hang: Hang) -> None:
    directory = hanging / hang.name
    until(
        lambda: tuple(stack.site for stack in stacks(directory)) == hang.sites,
        f"both ranks to hang: {stacks(directory)}",
    )
    found = diagnosis(stacks(directory))
    assert found is not None
    assert (found.kind, found.rank) == (hang.kind, hang.rank)
    assert says(hang.says, found.cause)
    assert says(hang.fix, found.fix)
