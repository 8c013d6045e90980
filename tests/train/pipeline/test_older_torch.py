"""What older versions of torch do otherwise, played on this one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage

from jupyter_mntrain.train.model.stages import Stage
from jupyter_mntrain.train.pipeline import runtime


def test_neighbors_begin_with_tensors_of_one_size_and_nobody_sends_to_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch 2.9 sends the stage's index as int64, also to the next stage of the same rank."""
    told = [
        SimpleNamespace(peer=0, tensor=torch.zeros(1)),
        SimpleNamespace(peer=2, tensor=torch.tensor(3)),
        SimpleNamespace(peer=1, tensor=torch.tensor(3)),
    ]
    monkeypatch.setattr(PipelineStage, "_get_init_p2p_neighbors_ops", lambda _: told)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    stage: Any = Stage.__new__(Stage)
    found = stage._get_init_p2p_neighbors_ops()
    assert [(one.peer, one.tensor.dtype) for one in found] == [
        (0, torch.float32),
        (2, torch.float32),
    ]


def test_an_order_of_an_older_schedule_is_run_by_the_runtime(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch 2.9's own have gaps where a rank waits, and another class."""

    class Runtime(SimpleNamespace):
        def __init__(self, stages: Any, microbatches: int, **_: Any) -> None:
            super().__init__(stages=stages, microbatches=microbatches)

        def _prepare_schedule_with_comms(self, order: Any) -> None:
            self.prepared = (order, self.stage_index_to_group_rank)

    private = SimpleNamespace(_PipelineScheduleRuntime=Runtime)
    monkeypatch.setattr(runtime, "private", private)
    older = SimpleNamespace(
        pipeline_order={0: ["F0", None, "B0"], 1: [None, "F0", "B0"]},
        stage_index_to_group_rank={0: 0, 1: 1, 2: 1, 3: 0},
    )
    made = runtime._on_runtime(older, [], 1, print)
    order = {0: ["F0", "B0"], 1: ["F0", "B0"]}
    assert made.prepared == (order, older.stage_index_to_group_rank)
    assert made.pipeline_order == order
    assert runtime._on_runtime(made, [], 1, print) is made
