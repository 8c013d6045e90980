"""What ``launch`` says of networks that a job does not use."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.records.node import RdmaPort
from tests.standin.cluster import StandInCluster, node
from tests.wording import says


@pytest.mark.parametrize("verb", ["launch --dry-run", "launch"])
def test_a_job_that_falls_back_to_tcp_is_told_before_its_start(do, recipe, as_json, verb):
    first, second = node("muthur", 2, gpus=1), node("wopr", 1, gpus=1)
    port = RdmaPort(device="mlx5_0", number=1, link="InfiniBand", state="ACTIVE", subnet="fe80")
    inventory = msgspec.structs.replace(first.info.inventory, rdma_ports=(port,))
    info = msgspec.structs.replace(first.info, inventory=inventory)
    pair = StandInCluster(nodes=[msgspec.structs.replace(first, info=info), second], jobs=[])
    words = (*verb.split(), "r.toml", "--member", "muthur:gpu0", "--member", "wopr:gpu0")
    (warning,) = as_json(do(*words, directory=recipe, on=pair))["warnings"]
    assert says("not InfiniBand: wopr: it has no InfiniBand adapter", warning["cause"])
    told = as_json(do(*words, "--env", "NCCL_IB_DISABLE=1", directory=recipe, on=pair))
    assert "warnings" not in told


@pytest.mark.parametrize("verb", ["launch --dry-run", "launch"])
def test_adapters_that_do_not_reach_the_memory_of_gpus_are_named(do, recipe, as_json, verb):
    port = RdmaPort(device="mlx5_0", number=1, link="InfiniBand", state="ACTIVE", subnet="fe80")

    def with_port(one, **fields):
        inventory = msgspec.structs.replace(one.info.inventory, rdma_ports=(port,), **fields)
        return msgspec.structs.replace(
            one, info=msgspec.structs.replace(one.info, inventory=inventory)
        )

    first = with_port(node("muthur", 2, gpus=1), gpu_direct="dma-buf")
    words = (*verb.split(), "r.toml", "--member", "muthur:gpu0", "--member", "wopr:gpu0")
    slow = StandInCluster(nodes=[first, with_port(node("wopr", 1, gpus=1))], jobs=[])
    (warning,) = as_json(do(*words, directory=recipe, on=slow))["warnings"]
    assert says("wopr: neither nvidia-peermem nor dma-buf", warning["cause"])
    second = with_port(node("wopr", 1, gpus=1), gpu_direct="nvidia-peermem")
    fast = StandInCluster(nodes=[first, second], jobs=[])
    assert "warnings" not in as_json(do(*words, directory=recipe, on=fast))
