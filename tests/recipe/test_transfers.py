"""Transfers: sizes of messages, and which boundary sends how."""

from __future__ import annotations

from typing import get_args

import pytest

from jupyter_mntrain.recipe.instructions import rank_of_stage
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.stored import resolved, values_of, without_plan
from jupyter_mntrain.recipe.transfers import (
    CODES,
    FORMATS,
    Format,
    Transfer,
    boundary_transfers,
    told_transfers,
    wire_bytes,
)

ON_TWO_NODES = ("wopr", "wopr", "muthur", "muthur")


def test_every_name_has_formats() -> None:
    assert {*FORMATS} == {*get_args(Transfer)}
    assert {one for both in FORMATS.values() for one in both} == {*get_args(Format)}


@pytest.mark.parametrize(
    ("form", "width", "size"),
    [
        ("none", 4, 4 * 768),
        ("none", 2, 2 * 768),
        ("bfloat16", 4, 2 * 768),
        ("int8", 4, 768 + 2),
    ],
)
def test_a_token_takes_its_values_and_scales(form: Format, width: int, size: int) -> None:
    assert wire_bytes(form, 10, 768, width) == 10 * size


@pytest.mark.parametrize(
    ("hidden", "tile", "each", "directions"),
    [
        *((768, 64, 12 * 34, 8), (100, 64, 2 * 34, 6), (64, 64, 34, 4), (40, 64, 34, 2)),
        *((32, 32, 18, 2), (8, 16, 10, 0)),
    ],
)
def test_4_bits_are_of_tiles_and_8_of_directions(
    hidden: int, tile: int, each: int, directions: int
) -> None:
    assert CODES["int4"].tile_of(hidden) == tile
    apart = directions * (hidden + 2) + 3 * (directions + 2) if directions else 0
    for width in (2, 4):
        assert wire_bytes("int4", 3, hidden, width) == apart + 3 * each


def test_one_name_is_for_boundaries_between_nodes() -> None:
    chain = range(4)
    assert boundary_transfers("int8", chain, ON_TWO_NODES) == ("none", "int8", "none")
    looped = [rank_of_stage(stage, 4) for stage in range(8)]
    assert boundary_transfers("int8-int4", looped, ON_TWO_NODES) == (
        *("none", "int8-int4", "none"),
        "int8-int4",  # from the last rank back to the first
        *("none", "int8-int4", "none"),
    )
    v = [rank_of_stage(stage, 2, is_v=True) for stage in range(4)]
    assert boundary_transfers("int4", v, ("wopr", "muthur")) == ("int4", "none", "int4")
    assert boundary_transfers("int8", chain, ["wopr"] * 4) == ("none",) * 3
    assert boundary_transfers("int8", [0], ["wopr"]) == ()


def test_a_list_is_taken_as_it_is() -> None:
    given: tuple[Transfer, ...] = ("int8", "none", "int4")
    assert boundary_transfers(given, range(4), ["wopr"] * 4) == given


@pytest.mark.wording
def test_what_is_sent_in_fewer_bits_is_said() -> None:
    said = told_transfers(
        ("int8-int4", "none", "bfloat16", "int8-int4"), tokens=2048, hidden=2048, width=2
    )
    first, second = said
    assert first.startswith("int8-int4 between stages 0 and 1, 3 and 4: activations take 50% and ")
    assert first.endswith("gradients take 27% of the bytes")
    assert second == "bfloat16 between stages 2 and 3: as they compute"


def test_where_nothing_plans_nothing_is_compressed() -> None:
    recipe = parse_recipe("")
    assert recipe.pipeline.transfer == "auto"
    assert recipe.transfer == without_plan(recipe).pipeline.transfer == "none"


@pytest.mark.parametrize("word", ["int8", '["int8", "none"]'])
def test_a_plan_decides_what_is_open(word: str) -> None:
    planned = resolved(parse_recipe(""), {"pipeline.transfer": word})
    assert values_of(planned) == {"pipeline.transfer": word}
    written = parse_recipe('[pipeline]\ntransfer = "none"')
    assert resolved(written, {"pipeline.transfer": word}) == written
