"""Verdicts on real ranks, of scripts without a Recorder: who failed, and how."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.records.job import JobView
from tests.agent.live import LiveAgent, launch, two_agents
from tests.waiting import until
from tests.wording import says

pytestmark = pytest.mark.slow

TRAINING = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(200):
    if step == 5 and rank == 1:
        {fault}
    {exchange}
    time.sleep(0.02)
"""
EXCHANGE = "dist.all_reduce(torch.ones(4))"
PATIENT = """
    try:
        dist.all_reduce(torch.ones(4))
    except RuntimeError as error:
        print("ERROR: lost a peer", error)
        sys.exit(3)
""".strip()
WRAPPING = """
    try:
        dist.all_reduce(torch.ones(4))
    except RuntimeError as error:
        raise ValueError("the training step failed") from error
""".strip()


class Case(NamedTuple):
    """What rank 1 does, how ranks meet, and the verdict."""

    fault: str
    kind: Kind
    names: str
    exchange: str = EXCHANGE


CASES = {
    "a script ends at once": Case("os._exit(77)", Kind.EXIT_CODE, "exit code 77"),
    "an error was handled before": Case(
        "print('KeyError: handled'); os._exit(78)", Kind.EXIT_CODE, "exit code 78"
    ),
    "a rank ends normally, too early": Case("sys.exit(0)", Kind.ENDED_EARLY, ""),
    "a rank ends too early, and crashes in a library after its end": Case(
        "import ctypes as c; libc = c.CDLL(None); "
        "libc.__cxa_atexit(c.cast(libc.abort, c.c_void_p), None, None); sys.exit(0)",
        Kind.ENDED_EARLY,
        "",
    ),
    "a crash in C": Case(
        "import ctypes; ctypes.string_at(0)",
        Kind.CRASHED,
        "SIGSEGV in <module> (script.py:8)",
    ),
    "another excepthook": Case(
        "sys.excepthook = lambda *_: None; raise KeyError('label')",
        Kind.EXCEPTION,
        "KeyError: 'label' (script.py, line 8)",
    ),
    "the other rank exits by itself": Case(
        "raise OverflowError('too large')",
        Kind.EXCEPTION,
        "OverflowError",
        PATIENT,
    ),
    "the other rank wraps its error": Case("os._exit(9)", Kind.EXIT_CODE, "exit code 9", WRAPPING),
}


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    state: Path = tmp_path_factory.mktemp("verdicts")
    with two_agents("127.97.0", state, "test") as made:
        yield made


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_verdict_names_the_rank_and_how_it_ended(agents: list[LiveAgent], case: Case) -> None:
    script = TRAINING.format(fault=case.fault, exchange=case.exchange)
    job_id = launch(agents, script)

    def view() -> JobView:
        return roll_up([agent.record(job_id) for agent in agents])

    until(lambda: view().state == "failed", "the job to fail")
    found = view().verdict
    assert found is not None
    told = found.problem
    assert (told.kind, told.node, told.rank) == (case.kind, "node2", 1), found
    assert says(case.names, told.cause)
    assert told.fix
