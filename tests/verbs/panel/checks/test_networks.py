"""InfiniBand that a job cannot use, or uses slowly, is told in the panel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.cluster import NodeView
from jupyter_mntrain.model.records.node import RdmaPort
from tests.standin.cluster import StandInCluster, node
from tests.verbs.panel.opened import choose, open_panel, words
from tests.wording import says

PORT = RdmaPort(device="mlx5_0", number=1, link="InfiniBand", state="ACTIVE", subnet="fe80")


def with_inventory(view: NodeView, **fields: Any) -> NodeView:
    assert view.info is not None
    inventory = msgspec.structs.replace(view.info.inventory, **fields)
    return msgspec.structs.replace(
        view, info=msgspec.structs.replace(view.info, inventory=inventory)
    )


@pytest.mark.wording
@pytest.mark.parametrize(
    ("ports", "gpu_direct", "said"),
    [
        ((), "dma-buf", "the ranks use TCP and not InfiniBand: b: it has no InfiniBand adapter"),
        ((PORT,), None, "b: neither nvidia-peermem nor dma-buf"),
        ((PORT,), "nvidia-peermem", ""),
    ],
)
def test_what_the_second_node_lacks_is_a_warning(
    here: Path, ports: tuple[RdmaPort, ...], gpu_direct: str | None, said: str
) -> None:
    first = with_inventory(node("a", 1, gpus=1), rdma_ports=(PORT,), gpu_direct="dma-buf")
    second = with_inventory(node("b", 2, gpus=1), rdma_ports=ports, gpu_direct=gpu_direct)
    panel = open_panel(StandInCluster([first, second]), here, "small.toml")
    form = panel.form()
    assert form.blocked is None
    if said:
        assert says(said, words(form))
        assert any(one.level == "slows" for one in form.settings)
        own = choose(panel, environment="NCCL_IB_DISABLE=1")
        assert not says(said, words(own)), "the job decides itself"
    else:
        assert form.settings == ()
