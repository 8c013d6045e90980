"""The command that compares every family, on one that is described."""

from __future__ import annotations

import threading
from multiprocessing.connection import Connection

import pytest
from torch import multiprocessing
from torch.multiprocessing import ProcessRaisedException

from tests.train.every_family import KINDS, main
from tests.train.forked import CONTEXT, told_by


@pytest.mark.slow
def test_a_family_is_equal_on_every_number_of_stages_with_and_without_adapters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["--only", "granite", "--steps", "1"])
    said = capsys.readouterr().out
    assert code == 0, said
    rows = [line.split()[:3] for line in said.splitlines() if line.startswith("granite")]
    ways = [["granite", str(stages), kind] for stages in (1, 2, 3) for kind in KINDS]
    assert rows == ways


def _wait_for_the_other(rank: int, told: Connection) -> None:
    if rank:
        raise ValueError("no such weight")
    told.send("begun")
    threading.Event().wait()


def test_a_rank_that_raises_ends_those_that_wait_for_it() -> None:
    ours, theirs = CONTEXT.Pipe(duplex=False)
    ranks = multiprocessing.start_processes(
        _wait_for_the_other, (theirs,), 2, join=False, start_method="forkserver"
    )
    with pytest.raises(ProcessRaisedException, match="no such weight"):
        list(told_by(ranks, ours))
    assert not any(one.is_alive() for one in ranks.processes)
