"""What GPUs decide where a recipe leaves that to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.model.records.node import Tools
from jupyter_mntrain.recipe.devices import Seat
from jupyter_mntrain.recipe.fitting import fit
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.stored import values_of, without_plan
from tests.wording import says

TOOLS = Tools(packages={"triton": "3.5"}, c_compiler="/gcc", cxx_compiler="/g++", has_headers=True)
LONG = "train.steps=1000"


def card(capability: tuple[int, int] | None = (8, 0), **fields: Any) -> Seat:
    usual: dict[str, Any] = {
        "node": "b",
        "gpu": "GPU 0, RTX",
        "tools": TOOLS,
        "has_varlen": True,
    }
    return Seat(**(usual | {"capability": capability} | fields))


CPU = Seat(node="c", tools=TOOLS)


def chosen(*seats: Seat, settings: tuple[str, ...] = ()) -> dict[str, str]:
    return dict(fit(parse_recipe("", settings), seats, {}).chosen)


@pytest.mark.wording
@pytest.mark.parametrize(
    ("seats", "dtype", "said"),
    [
        ((card(), card((9, 0))), "bfloat16", "bfloat16, float32 masters"),
        ((card((12, 0)),), "bfloat16", "bfloat16, float32 masters"),
        ((card(), card((7, 5), gpu="GPU 1, Tesla T4")), "float32", "Tesla T4, has no bfloat16"),
        ((card((7, 0)),), "float32", "has no bfloat16"),
        ((card(None),), "float32", "does not tell its compute capability"),
        ((card(), CPU), "float32", "c computes on CPUs"),
        ((CPU, CPU), "float32", ""),
    ],
)
def test_bfloat16_needs_every_rank_on_a_card_that_has_it(
    seats: tuple[Seat, ...], dtype: str, said: str
) -> None:
    found = fit(parse_recipe(""), seats, {})
    assert found.recipe.model.dtype == found.recipe.dtype == dtype == found.chosen["model.dtype"]
    # An update below 1/256 of a weight must not be lost by a choice that nobody made.
    assert found.recipe.precision == ("float32-master" if dtype == "bfloat16" else "plain")
    assert found.said == "" if not said else said in found.said


@pytest.mark.wording
def test_the_choice_is_one_line_of_80_columns() -> None:
    said = fit(parse_recipe("", [LONG]), [card(), card((9, 0))], {}).said
    assert said == "auto: bfloat16, float32 masters, varlen attention, plain loss, compiled"
    own = ("optimizer.precision=float32-master", "memory.loss=plain")
    said = fit(parse_recipe("", own), [card(), card((9, 0))], {}).said
    assert said == "auto: bfloat16, varlen attention (every GPU is Ampere or newer)"
    # The longest: each word that can be chosen.
    small, long = card(memory_bytes=1 << 28, has_varlen=False), (LONG, "data.sequence_length=65536")
    said = fit(parse_recipe("", long), [small], {}).said
    longest = "auto: bfloat16, stochastic rounding, flex attention, chunked loss, compiled"
    assert said == longest
    assert len(said) <= len(longest.replace("flex", "varlen")) <= 80
    said = fit(parse_recipe("", (LONG,)), [FLASH_ATTN], {}).said
    assert said == "auto: bfloat16, float32 masters, flash-attn, plain loss, compiled"
    old = card((7, 5), gpu="GPU 0, Tesla T4", node="workstation-17")
    said = fit(parse_recipe(""), [card(), old], {}).said
    assert said == "auto: float32, sdpa (workstation-17: GPU 0, Tesla T4, has no bfloat16)"
    bare = card(node="d", tools=Tools(packages={"triton": "3.5"}, has_headers=True))
    said = fit(parse_recipe("", [LONG]), [card(), bare], {}).said
    assert said == "auto: bfloat16, float32 masters, varlen, not compiled (d has no C compiler)"


def with_packages(*names: str, **fields: Any) -> Seat:
    tools = msgspec.structs.replace(TOOLS, packages=dict.fromkeys(("triton", *names), "1"))
    return card(tools=tools, **fields)


BARE = card(tools=Tools(), has_varlen=False)
FLASH_ATTN = with_packages("flash-attn", has_varlen=False)


@pytest.mark.parametrize(
    ("seats", "settings", "attention"),
    [
        ((card(), card((9, 0))), (), "varlen"),
        ((card(), CPU), (), "sdpa"),
        ((card(), card((7, 5))), (), "sdpa"),
        ((card(),), ("model.dtype=float32",), "sdpa"),
        ((card(), FLASH_ATTN), (), "flex_attention"),
        ((FLASH_ATTN, FLASH_ATTN), (), "flash_attention_2"),
        ((FLASH_ATTN, card(has_varlen=None)), (), "flex_attention"),
        ((card(has_varlen=False), card()), (), "flex_attention"),
        ((card(), BARE), (), "sdpa"),
        # Heads of 256: flash kernels have no backward pass for them on some cards.
        ((card(),), ("model.hidden_size=1024", "model.heads=4"), "flex_attention"),
        ((card(),), ("model.hidden_size=24", "model.heads=4"), "flex_attention"),
    ],
)
def test_attention_is_the_fastest_that_all_ranks_have(
    seats: tuple[Seat, ...], settings: tuple[str, ...], attention: str
) -> None:
    if settings and settings[0].startswith("model.hidden"):
        settings = (*settings, "model.key_value_heads=4")
    assert chosen(*seats, settings=settings)["model.attention"] == attention


@pytest.mark.parametrize(
    ("seats", "settings", "loss"),
    [
        ((with_packages("liger-kernel"),) * 2, (), "liger"),
        ((with_packages("liger-kernel"), card()), (), "plain"),
        ((with_packages("liger-kernel"), CPU), (), "plain"),
        ((with_packages("liger-kernel", capability=(6, 1)),), (), "plain"),
        ((with_packages("liger-kernel"),), ("pipeline.schedule=zbv",), "plain"),
        ((card(),), ("data.sequence_length=65536",), "chunked"),
        ((CPU,), ("data.sequence_length=65536",), "chunked"),
    ],
)
def test_the_loss_is_one_that_all_ranks_have(
    seats: tuple[Seat, ...], settings: tuple[str, ...], loss: str
) -> None:
    assert chosen(*seats, settings=settings)["memory.loss"] == loss


def test_what_depends_on_a_model_that_is_not_here_is_left_to_the_ranks(tmp_path: Path) -> None:
    found = chosen(card(), settings=(f"model.path={tmp_path / 'none'}",))
    assert found["model.dtype"] == "bfloat16"
    assert not {"model.attention", "memory.loss"} & found.keys()


def test_what_the_recipe_says_itself_stays_and_is_not_said() -> None:
    words = ["model.dtype=float32", "model.attention=sdpa"]
    words += ["memory.loss=plain", "memory.compile=false"]
    found = fit(parse_recipe("", words), [card()], {"model.dtype": "bfloat16"})
    assert (found.recipe, found.said) == (parse_recipe("", words), "")
    found = fit(parse_recipe("", ["optimizer.precision=plain"]), [card()], {})
    assert found.recipe.precision == "plain"


def test_masters_that_no_card_has_room_for_are_not_chosen() -> None:
    seats = [card(memory_bytes=80 << 30), card(memory_bytes=80 << 30)]
    assert chosen(*seats)["optimizer.precision"] == "float32-master"
    seats[1] = card(memory_bytes=1 << 28)
    assert chosen(*seats)["optimizer.precision"] == "stochastic-rounding"
    assert "optimizer.precision" not in chosen(card((7, 5)))


@pytest.mark.parametrize(
    ("seat", "settings", "is_compiled"),
    [
        (card(), (LONG,), True),
        (card((7, 0)), (LONG,), True),
        (card(), ("train.steps=999",), False),
        (card((6, 1)), (LONG,), False),
        (card(None), (LONG,), False),
        (card(tools=None), (LONG,), False),
        (card(tools=Tools()), (LONG,), False),
        (CPU, (LONG,), False),
        (card(), (LONG, "memory.checkpointing=selective"), False),
        (card(), (LONG, "pipeline.schedule=zbv"), False),
        (card(), (LONG, "data_parallel.shards=2"), False),
        (card(), (LONG, "adapters.rank=4", "adapters.quantize_base=nf4"), False),
    ],
)
def test_long_runs_are_compiled_where_all_nodes_can(
    seat: Seat, settings: tuple[str, ...], is_compiled: bool
) -> None:
    assert chosen(card(), seat, settings=settings)["memory.compile"] == str(is_compiled).lower()


def test_a_node_that_keeps_a_job_from_being_compiled_is_named() -> None:
    bare = card(node="d", tools=Tools(packages={"triton": "3.5"}, has_headers=True))
    said = fit(parse_recipe("", [LONG]), [card(), bare], {}).said
    assert says("d has no C compiler", said)
    assert "d has no" not in fit(parse_recipe(""), [card(), bare], {}).said  # too short anyway


def test_what_is_kept_is_not_chosen_again_unless_a_node_cannot_do_it() -> None:
    kept = {
        "model.dtype": "bfloat16",
        "model.attention": "varlen",
        "optimizer.precision": "stochastic-rounding",
        "memory.loss": "chunked",
        "memory.compile": "true",
    }
    assert fit(parse_recipe(""), [card()], kept).chosen == kept
    found = fit(parse_recipe(""), [BARE], kept)
    assert found.chosen == {**kept, "model.attention": "sdpa", "memory.compile": "false"}
    found = fit(parse_recipe(""), [card()], {**kept, "memory.loss": "liger"})
    assert found.chosen == {**kept, "memory.loss": "plain"}
    found = fit(parse_recipe(""), [card()], {**kept, "model.attention": "flash_attention_2"})
    assert found.chosen == kept


PLAN = {
    "pipeline.schedule": "gpipe",
    "pipeline.microbatches": "4",
    "pipeline.split": "[1, 3]",
    "pipeline.in_flight": "auto",
    "memory.checkpointing": "full",
}


def test_a_plan_is_kept_for_as_many_ranks_as_it_was_made_for() -> None:
    recipe = parse_recipe("", ["model.layers=4"])
    kept = fit(recipe, [CPU, CPU], PLAN).recipe
    assert (kept.schedule, kept.microbatches, kept.split) == ("gpipe", 4, (1, 3))
    assert kept.checkpointing == "full"
    known = {name: word for name, word in PLAN.items() if word != "auto"}
    assert known.items() <= values_of(kept).items()
    for ranks in (1, 3):
        fewer = fit(recipe, [CPU] * ranks, PLAN)
        assert not set(PLAN) & set(fewer.chosen)
        assert fewer.recipe.split == "even"


def test_a_plan_changes_nothing_that_the_recipe_says() -> None:
    written = ["model.layers=4", "pipeline.split=[2,2]", "pipeline.microbatches=2"]
    kept = fit(parse_recipe("", written), [CPU, CPU], PLAN).recipe
    assert (kept.split, kept.microbatches, kept.schedule) == ((2, 2), 2, "gpipe")


@pytest.mark.parametrize(("batch", "microbatches"), [(32, 8), (12, 6), (7, 7), (11, 1), (1, 1)])
def test_without_a_plan_the_microbatches_divide_the_batch(batch: int, microbatches: int) -> None:
    alone = without_plan(parse_recipe("", [f"train.batch_size={batch}"]))
    assert alone.pipeline.microbatches == microbatches
    assert alone.pipeline.split == "even"
    assert alone.pipeline.in_flight == "auto"
