"""Benchmark between processes: values that arrive changed are an error, not a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.train.pipeline.benchmark import CollectiveBenchmark, _of_wrong_values
from jupyter_mntrain.train.world import join_world
from tests.train.ranks import run_ranks
from tests.wording import says


def _receive_another_last_value(_: list[str]) -> None:
    receive = dist.recv

    def changed(tensor: Any, source: int) -> Any:
        done = receive(tensor, source)
        tensor[-1] += 1
        return done

    with join_world("cpu", 60.0) as world:
        if world.rank == 2:
            dist.recv = changed
        with pytest.raises(NodeError) as refused:
            CollectiveBenchmark(world, 1024).run()
        assert refused.value.kind is Kind.NCCL
        assert says("rank 2 did not receive the values that rank 0 sent", str(refused.value))
        assert says("and 3 more", str(refused.value)), "of two sizes, from two ranks"


def test_a_rank_that_receives_other_values_is_named_by_all(tmp_path: Path) -> None:
    ended = run_ranks(tmp_path / "none", ["a"] * 3, program=_receive_another_last_value)
    assert [one.exit_code for one in ended] == [0] * 3, ended[0].err[-3000:]


@pytest.mark.wording
def test_what_to_do_depends_on_where_it_was() -> None:
    one_node = _of_wrong_values([(0, 1, 1024)], ["a", "a"], on_gpus=True)
    assert "NCCL_P2P_DISABLE=1" in one_node.fix
    two_nodes = _of_wrong_values([(0, 1, 1024)], ["a", "b"], on_gpus=True)
    assert "on a and b" in two_nodes.cause
    assert "NCCL_P2P_DISABLE" not in two_nodes.fix
