"""Process groups: NCCL needs all ranks of a group at its first operation; two may not begin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch.distributed as dist
from torch.distributed.pipelining import schedules

from jupyter_mntrain.model.records.metrics import RankProgress
from jupyter_mntrain.train.world import CONNECTING, form_groups
from tests.train import forked
from tests.train.pipeline.test_replicas import BASE, sets
from tests.train.ranks import run_ranks
from tests.train.test_command import read, write_text

NODES = ["a", "a", "b", "b", "c", "c"]
"""Three stages, each on two ranks of a node."""


def train_and_tell(words: list[str]) -> None:
    """The trainer; prints each exchange, and each sum that is made while groups are formed.

    Sums at other times are of tensors on the CPU, or may come too late. A send or receive is told
    as what connects its group of two while groups are formed, as what is posted afterwards.
    """
    all_reduce, exchange, post = dist.all_reduce, dist.batch_isend_irecv, schedules._batch_p2p
    is_forming = False

    def tell(what: str, group: Any) -> None:
        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        name = (group or dist.group.WORLD).group_name
        print(json.dumps({"what": what, "ranks": ranks, "name": name}), flush=True)

    def forming(*arguments: Any) -> Any:
        nonlocal is_forming
        is_forming = True
        groups = form_groups(*arguments)
        is_forming = False
        return groups

    def summing(*arguments: Any, group: Any = None) -> Any:
        if is_forming:
            tell("sum", group)
        return all_reduce(*arguments, group=group)

    def exchanging(operations: Any) -> Any:
        tell("exchange", operations[0].group)
        return exchange(operations)

    def posting(operations: Any, desc: Any = None) -> Any:
        for operation in operations:
            tell("connect" if is_forming else "post", operation.group)
        return post(operations, desc)

    with (
        patch("jupyter_mntrain.train.loop.form_groups", forming),
        patch.object(dist, "all_reduce", summing),
        patch.object(dist, "batch_isend_irecv", exchanging),
        patch.object(schedules, "_batch_p2p", posting),
    ):
        forked.train(words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "groups"),
    [
        ("replicas", [[0, 1, 2, 3, 4, 5], [0, 2, 4], [0, 1]]),
        ("shards", [[0, 1, 2, 3, 4, 5], [0, 2, 4], [0, 1]]),
    ],
)
def test_every_group_is_connected_by_all_of_its_ranks_before_two_of_them_exchange(
    tmp_path: Path, kind: str, groups: list[list[int]]
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("")
    words = [*BASE, f"data.source={write_text(tmp_path / 'text')}", "train.steps=1"]
    words += [f"data_parallel.{kind}=2", "pipeline.microbatches=6", "evaluation.interval_steps=0"]
    ended = run_ranks(
        recipe, NODES, *sets(words), metrics=tmp_path / "metrics", program=train_and_tell
    )
    assert [one.exit_code for one in ended] == [0] * 6, ended
    sent: list[list[int]] = []
    for rank, one in enumerate(ended):
        lines = [json.loads(line) for line in one.out.splitlines() if line.startswith("{")]
        used = [line["ranks"] for line in lines if line["what"] == "sum"]
        sent += (line["ranks"] for line in lines if line["what"] == "exchange")
        whats = [line["what"] for line in lines if line["what"] != "post"]
        assert whats == sorted(whats, key=["sum", "connect", "exchange"].index), "connected before"
        connected = [line["name"] for line in lines if line["what"] == "connect"]
        posted = {line["name"] for line in lines if line["what"] == "post"}
        assert sorted(connected) == sorted(posted), "each once, and none in vain"
        assert len(lines) > len(whats) > whats.index("connect")
        assert [len(ranks) for ranks in used] == [*map(len, groups)], "in one order on all ranks"
        assert all(rank in ranks for ranks in used)
        assert all(line["ranks"] in used for line in lines if line["what"] in ("sum", "exchange"))
        assert rank or used == groups
        said = read(tmp_path / "metrics", rank)
        assert any(isinstance(one, RankProgress) and one.what == CONNECTING for one in said)
    assert sent, "the ranks of the first and the last stage exchange the tied gradient"
