"""Data parallelism: several pipelines save, export and log what a single one would."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.metrics import RankEvaluation
from jupyter_mntrain.recipe.layout import Grid
from jupyter_mntrain.recipe.parse import check
from jupyter_mntrain.train import parse_recipe, train
from jupyter_mntrain.train.model.sharding import rows_of_shard
from tests.train.ranks import run_ranks
from tests.train.test_command import losses, read, write_text
from tests.wording import says

STEPS = 6
BASE = (
    *("model.preset=llama-tiny", "model.tie_embeddings=true"),
    *("data.vocabulary_size=300", "data.sequence_length=16", "pipeline.microbatches=2"),
    *("train.device=cpu", f"train.steps={STEPS}", "train.batch_size=12", "optimizer.epsilon=1e-4"),
    *("evaluation.interval_steps=3", "evaluation.sequences=5", "report.to=[]"),
)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text("")
    return path


@pytest.fixture
def base(tmp_path: Path) -> list[str]:
    return [*BASE, f"data.source={write_text(tmp_path / 'text')}"]


def sets(changes: list[str]) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "nodes", "said"),
    [
        ("replicas", "aabb", ""),
        ("shards", "aabb", ""),
        ("shards", "abab", "ranks 0, 1 share theirs over the network, on a and b; a rank sends "),
    ],
)
def test_two_pipelines_of_two_ranks_train_what_one_process_trains(
    recipe: Path, base: list[str], tmp_path: Path, kind: str, nodes: str, said: str
) -> None:
    alone = train(parse_recipe("", [*base, f"output.directory={tmp_path / 'alone'}"]))
    mine = [*base, f"data_parallel.{kind}=2", f"output.directory={tmp_path / 'both'}"]
    ended = run_ranks(recipe, [*nodes], *sets(mine), metrics=tmp_path / "metrics")
    assert [one.exit_code for one in ended] == [0] * 4, ended
    assert "data parallel: 2 pipelines of 2 ranks" in ended[0].out
    assert said in ended[0].out
    assert ("over the network" in ended[0].out) == bool(said)
    assert "Fix:" not in ended[0].out
    assert losses(read(tmp_path / "metrics", 3)) == pytest.approx(alone.losses, abs=2e-5)
    samples = read(tmp_path / "metrics", 0)
    found = {one.step: one.loss for one in samples if isinstance(one, RankEvaluation)}
    assert found == pytest.approx(alone.evaluations, abs=2e-5)
    expected = load_file(tmp_path / "alone" / "model.safetensors")
    parts = [load_file(path) for path in (tmp_path / "both").glob("*.safetensors")]
    written = {name: one for part in parts for name, one in part.items()}
    assert sum(map(len, parts)) == len(expected), "each tensor is written once"
    for name, weight in expected.items():
        torch.testing.assert_close(written[name], weight, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_weights_that_are_dropped_after_each_pass_train_what_one_process_trains(
    recipe: Path, base: list[str], tmp_path: Path
) -> None:
    base += ["memory.checkpointing=selective", "memory.loss=chunked", "memory.chunk_tokens=5"]
    alone = train(parse_recipe("", base))
    mine = [*base, "data_parallel.shards=2", "data_parallel.reshard_after_forward=true"]
    ended = run_ranks(recipe, ["a", "b"], *sets(mine), metrics=tmp_path / "metrics")
    assert [one.exit_code for one in ended] == [0] * 2, ended
    samples = read(tmp_path / "metrics", 1)
    assert losses(samples) == pytest.approx(alone.losses, abs=2e-5)
    found = {one.step: one.loss for one in samples if isinstance(one, RankEvaluation)}
    assert found == pytest.approx(alone.evaluations, abs=2e-5)


@pytest.mark.slow
def test_a_run_goes_on_with_other_replicas_and_shards(
    recipe: Path, base: list[str], tmp_path: Path
) -> None:
    unbroken = train(parse_recipe("", base)).losses
    base += ["checkpoint.interval_steps=1", "checkpoint.keep=9", "output.at_end=false"]
    base += [f"checkpoint.directory={tmp_path / 'saved'}"]
    ways = [
        ("shards=2", ["a", "a", "b", "b"]),
        ("shards=1", ["a", "b"]),
        ("shards=3", ["a", "b", "a"]),
        ("shards=2", ["a", "b"]),
        ("replicas=2", ["a", "a"]),
    ]
    known: list[float] = []
    for turn, (kind, nodes) in enumerate(ways, 1):
        # The learning rate depends on the number of steps, so each turn is cut off by its shards.
        mine = [*base, f"data_parallel.{kind}"]
        metrics = tmp_path / f"metrics-{turn}"
        ended = run_ranks(recipe, nodes, *sets(mine), metrics=metrics)
        assert [one.exit_code for one in ended] == [0] * len(nodes), ended
        known = known[: turn - 1] + losses(read(metrics, 0))
        assert known == pytest.approx(unbroken, abs=2e-5)
        if turn > 1:
            assert f"resuming after step {turn - 1}" in ended[0].out
        for folder in (tmp_path / "saved").glob("step-*"):
            if int(folder.name.removeprefix("step-")) > turn:
                for path in folder.iterdir():
                    path.unlink()
                folder.rmdir()


@pytest.mark.slow
def test_replicas_on_different_nodes_work_and_are_told(
    recipe: Path, base: list[str], tmp_path: Path
) -> None:
    mine = [*base, "data_parallel.replicas=2", "train.steps=1"]
    ended = run_ranks(recipe, ["a", "b"], *sets(mine))
    assert [one.exit_code for one in ended] == [0, 0], ended
    assert says("gradients cross the network in every step. Fix: give every node", ended[0].out)


def test_the_ranks_of_a_node_are_replicas_of_one_stage() -> None:
    grid = Grid(6, 2)
    assert [grid.pipeline_of(rank) for rank in range(6)] == [(0, 2, 4), (1, 3, 5)] * 3
    assert [grid.replicas_of(rank) for rank in (0, 3, 5)] == [(0, 1), (2, 3), (4, 5)]
    assert [(grid.place_of(rank), grid.replica_of(rank)) for rank in (0, 3, 5)] == [
        (0, 0),
        (1, 1),
        (2, 1),
    ]
    assert Grid(3, 3).ring_of(0) == (2, 1)
    assert [grid.share_of(rank, 1025) for rank in range(6)] == [512, 513] * 3
    both = Grid(8, 2, 2)
    assert both.shards_of(6) == (6, 7)
    assert both.replicas_of(6) == (4, 6)
    assert both.pipeline_of(6) == (2, 6)
    assert (both.place_of(6), both.part_of(6), both.replica_of(6)) == (1, 2, 1)
    assert both.spread_shards("aabbccdd") is None
    assert both.spread_shards("aaabbbcc") == (2, 3)


def test_the_ranks_of_a_replica_that_meets_rarely_follow_each_other() -> None:
    grid = Grid(8, 2, 2, is_apart=True)
    assert grid.pipelines == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert grid.replicas_of(3) == (3, 7)
    assert grid.ring_of(3) == (7, 7)
    assert grid.shards_of(6) == (6, 7)
    assert grid.replica_ranks(5) == (4, 5, 6, 7)
    assert [*grid.replica_parts(5)] == [2, 3]
    assert grid.alike(1) == (2, 3, 6, 7)
    assert (grid.place_of(6), grid.part_of(6), grid.replica_of(6)) == (1, 2, 1)
    assert grid.spread_replicas(["a"] * 4 + ["b"] * 4) is None, "that is what it is for"
    both = Grid(8, 2, 2)
    assert both.pipelines == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert both.replica_ranks(5) == (0, 1, 4, 5)


def test_rows_are_dealt_as_fsdp_deals_them() -> None:
    assert [rows_of_shard(7, place, 3) for place in range(3)] == [(0, 3), (3, 6), (6, 7)]
    assert [rows_of_shard(2, place, 3) for place in range(3)] == [(0, 1), (1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("changes", "ranks", "said"),
    [
        (
            ["data_parallel.replicas=2"],
            3,
            "3 ranks is not a multiple of 2. Fix: use 1 ranks",
        ),
        (
            ["data_parallel.replicas=4"],
            6,
            "6 ranks is not a multiple of 4. Fix: use 3 ranks",
        ),
        (
            ["data_parallel.replicas=2", "train.batch_size=8", "pipeline.microbatches=8"],
            4,
            "data_parallel.replicas = 2). Fix: use 16",
        ),
        (
            ["data_parallel.replicas=2", "memory.fused_backward=true", "optimizer.clip_norm=0"],
            4,
            "a gradient is complete only after the backward pass. Fix: leave data_parallel out",
        ),
        (
            ["data_parallel.shards=2", "data_parallel.replicas=2"],
            6,
            "replicas = 2 x data_parallel.shards = 2: 6 ranks is not a multiple of 4",
        ),
        (
            ["data_parallel.shards=2", "data_parallel.reshard_after_forward=true"],
            4,
            "reshard_after_forward = true: with a pipeline of 2 ranks, each of its many",
        ),
        (
            ["data_parallel.reshard_after_forward=true"],
            2,
            "reshard_after_forward = true: no weights are sharded. Fix: set data_parallel.shards",
        ),
        (
            ["data_parallel.sync_every=50"],
            2,
            "data_parallel.sync_every: a single replica has no other to sync with. Fix: set",
        ),
        (
            ["data_parallel.sync_every=50", "data_parallel.outer_momentum=0.5"],
            2,
            "for example to 2, or leave sync_every and outer_momentum out",
        ),
        (
            ["data_parallel.sync_dtype=int8", "data_parallel.outer_momentum=0.5"],
            2,
            "data_parallel.outer_momentum: a single replica has no other to sync with",
        ),
        (
            ["data_parallel.replicas=2", "data_parallel.outer_momentum=0.5"],
            2,
            "data_parallel.outer_momentum: replicas sum gradients in every step, because ",
        ),
        (
            [
                *("data_parallel.replicas=2", "data_parallel.sync_every=50"),
                "evaluation.interval_steps=120",
            ],
            2,
            "different weights between syncs. Fix: use a multiple of 50, for example 100",
        ),
        (
            ["data_parallel.replicas=2", "pipeline.schedule=1f1b", "pipeline.microbatches=1"],
            4,
            "pipeline.microbatches = 1: fewer than the 2 pipeline stages",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    changes: list[str], ranks: int, said: str
) -> None:
    with pytest.raises(RecipeError) as refusal:
        check(parse_recipe("", changes), ranks)
    assert says(said, str(refusal.value))
