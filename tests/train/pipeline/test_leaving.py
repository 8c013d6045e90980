"""Leaving: a rank that failed does not wait for what its groups would need of the others."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch.distributed as dist

from jupyter_mntrain.train.pipeline.pipeline import Pipeline
from tests.train import forked
from tests.train.pipeline.test_replicas import BASE, sets
from tests.train.ranks import run_ranks
from tests.train.test_command import write_text


def fail_in_a_step(words: list[str]) -> None:
    """The trainer, whose first step fails; its groups' end would be waited for without end."""

    def wait(*_: Any) -> None:
        print("waits", flush=True)
        threading.Event().wait()

    def fail(*_: Any) -> None:
        print("fails", [len(group) for group in groups_of_two()], flush=True)
        raise RuntimeError("fault")

    def groups_of_two() -> list[list[int]]:
        every = map(dist.get_process_group_ranks, dist.distributed_c10d._world.pg_map)
        return [ranks for ranks in every if len(ranks) == 2]

    with (
        patch.object(Pipeline, "forward_backward", fail),
        patch.object(dist, "destroy_process_group", wait),
        patch.object(dist.ProcessGroup, "shutdown", wait),
    ):
        forked.train(words)


@pytest.mark.slow
def test_a_rank_that_failed_leaves_without_ending_its_groups(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("")
    words = [*BASE, f"data.source={write_text(tmp_path / 'text')}", "train.steps=1"]
    ended = run_ranks(recipe, ["a", "b"], *sets(words), program=fail_in_a_step)
    for one in ended:
        assert one.exit_code == 1, one
        assert "RuntimeError: fault" in one.err
        assert one.out.count("fails [2, 2, 2]") == 1, "the job's group and one per direction"
        assert "waits" not in one.out
