"""The node whose NCCL log stopped first."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.failure.causes.quiet import LEAD_S
from jupyter_mntrain.model.failure.diagnosis import diagnose
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.evidence import Evidence, LinkTry, NetworkState
from jupyter_mntrain.model.records.job import Doing, PartStatus, RankStack, Stall
from tests.wording import says

SINCE_S = 100.0


def part(number: int, nccl_s: float | None, doing: Doing = "waiting for others") -> PartStatus:
    stack = RankStack(rank=Rank(number), doing=doing, site="gpu", where="step (train.py:9)")
    links = tuple(
        LinkTry(interface="eth1", trouble=None, peer=f"n{n}") for n in range(3) if n != number
    )
    network = NetworkState(interface="eth1", is_there=True, is_up=True)
    return PartStatus(
        node_id=NodeId(f"{number:032x}"),
        node=f"n{number}",
        state="running",
        stall=Stall(since_s=SINCE_S, limit_s=10.0, step=3, stacks=(stack,)),
        evidence=Evidence(time_s=120.0, network=network, nccl_s=nccl_s, links=links),
    )


@pytest.mark.parametrize(
    ("times_s", "names"),
    [
        ((112.0, 101.0, 113.0), "NCCL's log on n1 stopped first, 11 s before that on n0"),
        ((112.0, 90.0, None), "NCCL's log on n1 stopped first, 22 s"),
        ((112.0, 112.0 - LEAD_S / 2, 113.0), ""),  # no lead
        ((99.0, 20.0, 99.0), ""),  # said while it connected
        ((112.0, None, None), ""),
        ((None, None, None), ""),
    ],
)
def test_it_is_named_if_others_went_on_after_the_last_progress(
    times_s: tuple[float | None, ...], names: str
) -> None:
    found = diagnose([part(number, one) for number, one in enumerate(times_s)])
    assert found is not None
    assert found.kind is Kind.ALL_WAIT
    assert says(names, found.cause)
    assert bool(names) or "stopped first" not in found.cause


def test_what_explains_the_stall_comes_without_it() -> None:
    stopped = msgspec.structs.replace(part(1, 90.0, "stopped"))
    found = diagnose([part(0, 112.0), stopped])
    assert found is not None
    assert found.kind is Kind.STOPPED
    assert "stopped first" not in found.cause
