"""Deadlock sites: recognized by a rank's frames and the source line it is at."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.failure.calls import Call, GroupCalls
from jupyter_mntrain.model.failure.sites import (
    Frame,
    Site,
    WaitingRank,
    pending_site,
    site_of,
    why_all_wait,
)
from jupyter_mntrain.model.ids import Rank
from tests.wording import says

OWN: Frame = ("/home/kim/train.py", 12, "step")


def torch(name: str, file: str = "distributed/distributed_c10d.py") -> Frame:
    return (f"/x/site-packages/torch/{file}", 1, name)


@pytest.mark.parametrize(
    ("frames", "line", "site"),
    [
        ([], "", None),
        ([OWN], "x = 1", None),
        ([OWN], "    work.wait()", "exchange"),
        ([OWN], "total += loss.item()", "gpu"),
        ([torch("synchronize", "cuda/__init__.py"), OWN], "", "gpu"),
        ([torch("recv"), OWN], "", "receive"),
        ([torch("send"), OWN], "", "send"),
        ([torch("all_gather"), torch("all_gather_object"), OWN], "", "gather"),
        ([torch("barrier"), torch("new_group"), OWN], "", "new group"),
        ([torch("all_reduce"), torch("broadcast"), OWN], "", "collective"),
        ([torch("monitored_barrier"), OWN], "", "barrier"),
        ([torch("_wait_batch_p2p", "distributed/pipelining/schedules.py"), OWN], "", "pipeline"),
        ([torch("something_new"), OWN], "", "exchange"),
        ([torch("all_reduce", "nn/functional.py"), OWN], "", None),
    ],
)
def test_the_site(frames: list[Frame], line: str, site: Site | None) -> None:
    assert site_of(frames, line) == site


BACKWARD = torch("_engine_run_backward", "autograd/graph.py")


@pytest.mark.parametrize(
    ("frames", "calls", "site"),
    [
        (
            [BACKWARD, OWN],
            [Call(1, "all_reduce", is_over=True), Call(2, "all_reduce")],
            "collective",
        ),
        ([BACKWARD, OWN], [Call(1, "all_gather")], "gather"),
        ([BACKWARD, OWN], [Call(1, "all_reduce", is_over=True)], None),
        ([OWN], [Call(1, "all_reduce")], None),
        ([BACKWARD, OWN], [], None),
    ],
)
def test_a_collective_that_torch_waits_for_in_cpp(
    frames: list[Frame], calls: list[Call], site: Site | None
) -> None:
    assert pending_site(frames, [GroupCalls("0", "gloo", tuple(calls))]) == site


def at(rank: int, site: Site, where: str = "") -> WaitingRank:
    return WaitingRank(Rank(rank), f"n{rank}", site, where)


@pytest.mark.wording
def test_of_many_ranks_the_odd_one_out_is_named_first() -> None:
    ranks = [at(0, "collective"), at(1, "collective"), at(2, "barrier"), at(3, "collective")]
    summary, fix = why_all_wait(ranks)
    assert summary.startswith("rank 2 on n2 is in a barrier, but rank 0 on n0 is in a collective")
    assert says("barrier", fix)


def test_the_same_call_in_two_places_is_two_calls() -> None:
    summary, _ = why_all_wait([at(0, "barrier", "a (x.py:1)"), at(1, "barrier", "b (x.py:9)")])
    assert says("in a (x.py:1), but rank 1 on n1 is in a barrier, in b (x.py:9)", summary)


@pytest.mark.wording
def test_all_in_one_place_is_no_ranks_fault() -> None:
    summary, fix = why_all_wait([at(0, "pipeline", "f (x.py:1)"), at(1, "pipeline", "f (x.py:1)")])
    assert summary.endswith("each waits for what a neighboring stage sends, in f (x.py:1)")
    assert says("microbatches", fix)
