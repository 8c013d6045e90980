"""What GPUs and nodes cannot do is refused with node, card and fix."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import Tools
from jupyter_mntrain.recipe.devices import Seat, refuse_unable
from jupyter_mntrain.recipe.fitting import fit
from jupyter_mntrain.recipe.parse import parse_recipe
from tests.wording import says

ALL = Tools(
    packages=dict.fromkeys(("triton", "liger-kernel", "torchao", "flash-attn"), "1"),
    c_compiler="/gcc",
    cxx_compiler="/g++",
    has_headers=True,
)


def card(capability: tuple[int, int] | None = (8, 0), **tools: Any) -> Seat:
    """A GPU of a node that has all tools except for these."""
    found = msgspec.structs.replace(ALL, **tools)
    return Seat(node="b", gpu="GPU 1, Tesla T4", capability=capability, tools=found)


def cpu(**tools: Any) -> Seat:
    return Seat(node="b", tools=msgspec.structs.replace(ALL, **tools))


def refusal(setting: str, *seats: Seat, is_resumed: bool = False) -> Problem | None:
    recipe = parse_recipe("", [setting])
    try:
        refuse_unable(recipe, [card(), *seats], is_resumed=is_resumed)
    except RecipeError as error:
        return error.problem
    return None


BFLOAT16 = "model.dtype=bfloat16"
COMPILE = "memory.compile=true"
FLASH = "model.attention=flash_attention_2"
VARLEN = "model.attention=varlen"
FLEX = "model.attention=flex_attention"
LIGER = "memory.loss=liger"
QUANTIZED = "optimizer.kind=adamw-8bit"


OLD_TORCH = msgspec.structs.replace(card(), has_varlen=False)


@pytest.mark.wording
@pytest.mark.parametrize(
    ("setting", "seat", "cause", "fix"),
    [
        (BFLOAT16, card((7, 5)), "has no bfloat16", 'use dtype = "float32"'),
        (FLASH, card((7, 5)), "compute capability 7.5, and 8.0 is needed", 'use "auto"'),
        (FLASH, card(packages={}), "flash-attn is not installed", "pip install"),
        (FLASH, cpu(), "runs on GPUs only", 'use "auto"'),
        (VARLEN, cpu(), "runs on GPUs only", 'use "auto"'),
        (VARLEN, card((7, 5)), "compute capability 7.5, and 8.0 is needed", 'use "auto"'),
        (VARLEN, OLD_TORCH, "this torch has no such kernel", "install torch 2.12 or newer"),
        (FLEX, cpu(), "runs on GPUs only", 'use "auto"'),
        (FLEX, card((6, 1)), "compute capability 6.1, and 7.0 is needed", 'use "auto"'),
        (FLEX, card(packages={}), "no triton", "pip install triton"),
        (COMPILE, card((6, 1)), "compute capability 6.1, and 7.0 is needed", "compile = false"),
        (COMPILE, card(c_compiler=None), "no C compiler", "apt install gcc"),
        (COMPILE, card(has_headers=False), "no Python.h", "apt install python3-dev"),
        (COMPILE, cpu(cxx_compiler=None), "no C++ compiler", "g++"),
        (LIGER, card(packages={"triton": "3"}), "liger-kernel is not installed", "[liger]"),
        (LIGER, card(c_compiler=None), "no C compiler", "apt install gcc"),
        (LIGER, cpu(), "runs on GPUs only", 'use "chunked"'),
        (QUANTIZED, card(packages={"triton": "3"}), "torchao is not installed", "[memory]"),
        (QUANTIZED, cpu(cxx_compiler=None), "no C++ compiler", 'use "adamw"'),
    ],
)
def test_a_node_that_cannot_is_named_with_its_card_and_a_fix(
    setting: str, seat: Seat, cause: str, fix: str
) -> None:
    problem = refusal(setting, seat)
    assert problem is not None
    assert problem.node == "b"
    assert problem.cause.startswith(f"{setting.partition('=')[0]} = ")
    assert says(cause, problem.cause)
    assert says(fix, problem.fix)
    if "capability" in cause:
        assert "GPU 1, Tesla T4" in problem.cause


def test_weights_in_4_bits_need_torchao_on_every_node() -> None:
    recipe = parse_recipe("", ["adapters.rank=4", "adapters.quantize_base=nf4"])
    tools = {"peft": "1", "torchao": "1"}
    refuse_unable(recipe, [cpu(packages=tools, cxx_compiler=None), card((7, 0), packages=tools)])
    with pytest.raises(RecipeError) as error:
        refuse_unable(recipe, [cpu(packages={"peft": "1"})])
    assert says("torchao is not installed", error.value.cause)
    assert says("jupyter-mntrain[memory]", error.value.fix or "")


@pytest.mark.parametrize(
    ("setting", "seat"),
    [
        (BFLOAT16, card((12, 0))),
        (BFLOAT16, card(None)),
        (BFLOAT16, cpu()),
        (FLASH, card((8, 0))),
        (VARLEN, card((8, 0))),
        (COMPILE, card((7, 0), cxx_compiler=None)),
        (COMPILE, cpu(packages={}, c_compiler=None)),
        (LIGER, card((7, 5))),
        (QUANTIZED, cpu(packages={"torchao": "1"})),
        (COMPILE, Seat(node="b", gpu="GPU 0")),
    ],
)
def test_what_can_or_is_unknown_is_not_refused(setting: str, seat: Seat) -> None:
    assert refusal(setting, seat) is None


def test_a_node_that_cannot_compress_is_named_unless_a_plan_may_decide() -> None:
    old = msgspec.structs.replace(cpu(), compresses=False)
    for transfer in ("int8", "none"):
        refused = refusal(f"pipeline.transfer={transfer}", old)
        assert refused is not None
        assert refused.node == "b"
        assert says("pipeline.transfer", refused.cause)
        assert refusal(f"pipeline.transfer={transfer}", cpu()) is None
    assert refusal("pipeline.transfer=auto", old) is None


def test_a_run_that_compressed_nothing_goes_on_with_nodes_that_cannot() -> None:
    """Their trainer does not even know the setting."""
    old = msgspec.structs.replace(cpu(), compresses=False)
    kept = {"pipeline.transfer": "none", "pipeline.schedule": "1f1b"}
    assert fit(parse_recipe(""), [old, cpu()], kept).recipe.pipeline.transfer == "auto"
    assert fit(parse_recipe(""), [cpu(), cpu()], kept).recipe.pipeline.transfer == "none"
    packed = kept | {"pipeline.transfer": "int8"}
    assert fit(parse_recipe(""), [old, cpu()], packed).recipe.pipeline.transfer == "int8"


def test_a_resumed_run_is_not_told_to_change_its_dtype() -> None:
    problem = refusal(BFLOAT16, card((7, 5)), is_resumed=True)
    assert problem is not None
    assert says("the run that is resumed has bfloat16 weights", problem.cause)
    assert "float32" not in problem.fix


@pytest.mark.wording
def test_a_way_of_rounding_that_float32_has_no_use_for_is_refused_once_that_is_chosen() -> None:
    recipe = parse_recipe("", ["optimizer.precision=stochastic-rounding"])
    chosen = msgspec.structs.replace(
        recipe, model=msgspec.structs.replace(recipe.model, dtype="float32")
    )
    with pytest.raises(RecipeError, match=r"optimizer\.precision"):
        refuse_unable(chosen, [cpu()])


def test_flash_attn_is_refused_once_float32_is_chosen() -> None:
    resolved = parse_recipe("", ["model.attention=flash_attention_2", "model.dtype=auto"])
    with_float32 = fit(resolved, [card((8, 0)), cpu()], {}).recipe
    with pytest.raises(RecipeError) as refused:
        refuse_unable(with_float32, [card((8, 0))])
    assert says("float32", str(refused.value))


def test_of_a_card_that_made_the_dtype_float32_it_is_not_said_to_use_bfloat16() -> None:
    written = parse_recipe("", ["model.attention=varlen"])
    found = fit(written, [card((7, 5))], {})
    with pytest.raises(RecipeError) as refused:
        refuse_unable(found.recipe, found.seats)
    assert refused.value.problem.node == "b"
    assert "bfloat16" not in refused.value.problem.fix
