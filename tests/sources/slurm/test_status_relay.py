"""StatusRelay: what the agents of an allocation are told of its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.model.sources.slots import AllocationFile, read_allocation
from jupyter_mntrain.model.sources.source import Allocation, NodesRequest
from jupyter_mntrain.sources.slurm.status_relay import StatusRelay


class Told:
    """SLURM, as it is looked at once and again."""

    def __init__(self, *looks: Allocation) -> None:
        self._looks = iter(looks)

    async def look(self, *_: Any) -> Allocation:
        return next(self._looks)


def allocation(state: Any, **fields: Any) -> Allocation:
    return Allocation("7", "slurm", state, slots=(), **{"grants": 1} | fields)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (allocation("ending"), AllocationFile(is_canceled=True)),
        (allocation("ending", outcome="canceled"), AllocationFile(is_canceled=True)),
        (allocation("ending", outcome="failed"), AllocationFile()),
        (allocation("ending", grants=2), AllocationFile(comes_back=True)),
        (allocation("pending", grants=1), AllocationFile()),
    ],
)
def test_what_ends_an_allocation_from_outside_is_told_to_its_agents(
    end: Allocation, told: AllocationFile, tmp_path: Path
) -> None:
    source: Any = Told(allocation("running"), end)
    relay = StatusRelay(source, "7", NodesRequest("slurm", 1), tmp_path)
    relay.look()
    relay.look()
    assert read_allocation(tmp_path) == told


@pytest.mark.parametrize("grants", [1, 2])
def test_a_step_that_is_not_listed_is_nothing_to_tell(grants: int, tmp_path: Path) -> None:
    source: Any = Told(allocation("running"), allocation("ending", grants=grants))
    relay = StatusRelay(source, "7/train-0a1b2c3d", NodesRequest("slurm", 1), tmp_path)
    relay.look()
    relay.look()
    assert read_allocation(tmp_path) == AllocationFile()
