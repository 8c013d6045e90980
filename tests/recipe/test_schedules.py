"""Schedules: microbatches in flight, the order of a stage, and the rank of a stage."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.instructions import choose_counts, rank_of_stage
from jupyter_mntrain.recipe.parse import check
from jupyter_mntrain.recipe.schedules import KINDS, eager_order, in_flight
from jupyter_mntrain.recipe.sections import PipelineSection, Recipe
from jupyter_mntrain.train import parse_recipe
from tests.train.ranks import run_ranks
from tests.train.test_command import losses, read, write_text
from tests.wording import says

MANY = (99, 99, 99, 99)


@pytest.mark.parametrize(
    ("transfer_s", "ahead"),
    [
        ((0.0, 0.0, 0.0), (4, 3, 2, 1)),  # 1F1B
        ((0.0, 0.01, 0.0), (5, 4, 2, 1)),  # one slow link: ahead of it, and of nothing else
        ((0.25, 0.0, 0.0), (7, 3, 2, 1)),
        ((0.25, 0.25, 0.25), (13, 9, 5, 1)),
    ],
)
def test_as_many_go_ahead_as_the_links_need(
    transfer_s: tuple[float, ...], ahead: tuple[int, ...]
) -> None:
    assert in_flight((0.1, 0.1, 0.1, 0.1), transfer_s, 16, MANY) == ahead


def test_memory_and_the_number_of_microbatches_are_bounds() -> None:
    links = (0.25, 0.25, 0.25)
    assert in_flight((0.1,) * 4, links, 6, MANY) == (6, 6, 5, 1)
    assert in_flight((0.1,) * 4, links, 16, (5, 5, 5, 5)) == (5, 5, 5, 1)
    assert in_flight((0.0, 0.0), (1.0,), 8, MANY[:2]) == (2, 1), "nothing was measured"


@given(st.integers(1, 40), st.integers(1, 40))
def test_every_microbatch_goes_forward_once_and_then_back_once_in_order(
    ahead: int, microbatches: int
) -> None:
    order = eager_order(ahead, microbatches)
    for kind in "FB":
        assert [mb for one, mb in order if one == kind] == list(range(microbatches))
    flying = 0
    for kind, mb in order:
        assert kind == "F" or ("F", mb) in order[: order.index(("B", mb))]
        flying += 1 if kind == "F" else -1
        assert 0 <= flying <= min(ahead, microbatches)


def test_in_a_v_the_first_and_the_last_stage_are_neighbors() -> None:
    assert [rank_of_stage(stage, 3) for stage in range(6)] == [0, 1, 2, 0, 1, 2]
    assert [rank_of_stage(stage, 3, is_v=True) for stage in range(6)] == [0, 1, 2, 2, 1, 0]


@pytest.mark.parametrize(
    ("settings", "world_size", "cause", "fix"),
    [
        (["schedule=zbv", "stages_per_rank=3"], 2, "zbv runs 2 per rank", "use 2"),
        (["schedule=looped-bfs", "stages_per_rank=1"], 2, "needs 2 or more", "use 2"),
        (["schedule=dualpipev", "microbatches=3"], 2, "fewer than the 4 pipeline", "use 4"),
        (["schedule=1f1b", "microbatches=1"], 2, "fewer than the 2", "use 2"),
        (["in_flight=[1, 2]"], 2, "fewer than the next stage", "never increase"),
        (["in_flight=[3]"], 2, "1 numbers for 2 pipeline stages", "give 2"),
        (["schedule=gpipe", "in_flight=[2, 1]"], 2, "a fixed order", "eager-1f1b"),
        (["deferred=[0, 1]"], 2, "eager-1f1b defers no gradients", "eager-zero-bubble"),
        (
            ["schedule=eager-zero-bubble", "deferred=[1]"],
            2,
            "1 numbers for 2 pipeline stages",
            "give 2",
        ),
        (["schedule=zb"], 2, "is not allowed", '"zbv"'),
        (['transfer=["int8"]'], 3, "1 of them for 2 boundaries", "give 2"),
        (['transfer=["int8"]'], 1, "0 boundaries between 1 pipeline stage", '"none"'),
        (['transfer=["int8", "int8", "none"]', "schedule=zbv"], 2, "both on rank 1", "number 2"),
        (["transfer=int6"], 2, "is not allowed", '"int8"'),
        (['transfer=["int6"]'], 2, "is not allowed", '"int8"'),
    ],
)
def test_what_a_schedule_cannot_do_is_one_clear_line(
    settings: list[str], world_size: int, cause: str, fix: str
) -> None:
    with pytest.raises(RecipeError) as refused:
        parse_and_check(settings, world_size)
    assert says(cause, refused.value.cause)
    assert says(fix, refused.value.fix or "")


def parse_and_check(settings: list[str], world_size: int) -> None:
    changes = ["train.batch_size=24", *(f"pipeline.{one}" for one in settings)]
    check(parse_recipe("", changes), world_size)


@pytest.mark.parametrize("schedule", KINDS)
def test_every_schedule_runs_on_one_rank_alone(schedule: str) -> None:
    check(parse_recipe("", [f"pipeline.schedule={schedule}", "pipeline.microbatches=1"]), 1)


@pytest.mark.parametrize(
    "schedule", ["eager-1f1b", "eager-zero-bubble", "gpipe", "zbv", "looped-bfs"]
)
def test_fewer_microbatches_than_ranks_are_enough_for_some(schedule: str) -> None:
    settings = [f"pipeline.schedule={schedule}", "pipeline.microbatches=2", "model.layers=8"]
    check(parse_recipe("", settings), 4)


@pytest.mark.slow
def test_what_the_links_need_is_measured_and_changes_no_loss(tmp_path: Path) -> None:
    """Two ranks that say they are on two nodes: what lies between them is a link."""
    text = write_text(tmp_path / "text")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("")
    found = {}
    for name, more in (
        ("auto", ()),
        ("by hand", ("pipeline.in_flight=[2, 1]",)),
        ("deferred", ("pipeline.schedule=eager-zero-bubble",)),
    ):
        settings = (
            *("model.preset=llama-tiny", "data.vocabulary_size=300", f"data.source={text}"),
            *("data.sequence_length=16", "pipeline.microbatches=4", "train.device=cpu"),
            *("train.steps=5", "train.batch_size=4", "checkpoint.interval_steps=0", *more),
        )
        options = [word for one in settings for word in ("--set", one)]
        ended = run_ranks(recipe, "ab", *options, metrics=tmp_path / name)
        assert [one.exit_code for one in ended] == [0, 0], ended
        assert ("3, 1 microbatches in flight" in ended[0].out) == (name == "auto")
        deferred = "4, 1 microbatches in flight per stage, weight gradients of 0, 2 deferred"
        assert (deferred in ended[0].out) == (name == "deferred")
        found[name] = losses(read(tmp_path / name, 0))
    assert found["auto"] == found["by hand"] == found["deferred"]


@pytest.mark.parametrize(
    ("transfer_s", "counts"),
    [
        ((0.0, 0.0, 0.0), ((7, 3, 2, 1), (0, 1, 2, 3))),
        ((0.0, 0.01, 0.0), ((8, 4, 2, 1), (0, 1, 3, 4))),
        ((0.25, 0.25, 0.25), ((16, 9, 5, 1), (0, 2, 4, 6))),
    ],
)
def test_gradients_of_weights_are_put_off_as_the_links_need(
    transfer_s: tuple[float, ...], counts: tuple[tuple[int, ...], ...]
) -> None:
    section = PipelineSection(schedule="eager-zero-bubble", microbatches=16)
    assert choose_counts(Recipe(pipeline=section), (0.1,) * 4, transfer_s, MANY) == counts
    given = msgspec.structs.replace(section, in_flight=(4, 3, 2, 1), deferred=(0, 9, 0, 9))
    assert choose_counts(Recipe(pipeline=given), (0.1,) * 4, transfer_s, MANY) == (
        given.in_flight,
        given.deferred,
    )
    eager = PipelineSection(schedule="eager-1f1b", microbatches=16)
    ahead = in_flight((0.1,) * 4, transfer_s, 16, MANY)
    assert choose_counts(Recipe(pipeline=eager), (0.1,) * 4, transfer_s, MANY) == (ahead, (0,) * 4)


def test_in_flight_or_put_off_no_more_are_held_than_fit_into_memory() -> None:
    section = PipelineSection(schedule="eager-zero-bubble", microbatches=16)
    links = (0.25, 0.25, 0.25)
    assert choose_counts(Recipe(pipeline=section), (0.1,) * 4, links, (8, 6, 5, 4)) == (
        (8, 6, 5, 1),
        (0, 0, 0, 3),
    )
    few = msgspec.structs.replace(section, microbatches=2)
    assert choose_counts(Recipe(pipeline=few), (0.1,) * 4, links, (2,) * 4) == (
        (2, 2, 2, 1),
        (0, 2, 2, 2),
    )
