"""Adapters that do not fit are refused in one line, and what they hold is known without torch."""

from __future__ import annotations

import math

import pytest

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.families import linears, parameters, shape_of
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.parse import parse_recipe, preset_config
from jupyter_mntrain.recipe.parts.adapters import AdaptersSection, adapted
from jupyter_mntrain.recipe.rank_memory import (
    forecast,
    model_config,
    place_forecast,
    shown_adapters,
    trained_parameters,
)
from jupyter_mntrain.telemetry.formulas import stage_flops_per_token
from tests.wording import says, wording

LINEARS = {"self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "mlp.down_proj": (64, 160)}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (("adapters.alpha=16",), "there are no adapters, because adapters.rank is 0"),
        (("adapters.dropout=0.1",), "set a rank, for example 16, or leave dropout out"),
        (("adapters.rank=4", "adapters.modules=[]"), "no layer would have an adapter"),
        (("adapters.rank=4", 'tokens.add=["<|im_start|>"]'), "rows of added tokens would not be"),
        (("adapters.rank=4", "adapters.modules=q_proj"), "a list, each text in quotes"),
    ],
)
def test_fields_that_say_nothing_are_refused(changes: tuple[str, ...], told: str) -> None:
    with pytest.raises(RecipeError, match=wording(told)):
        parse_recipe("", changes)


@pytest.mark.parametrize(
    ("modules", "rank", "told", "fix"),
    [
        (("q_prj",), 4, 'has a linear layer "q_prj"', "use q_proj"),
        (("lm_head",), 4, '"lm_head"', "some of q_proj, k_proj, down_proj"),
        ("all-linear", 48, "k_proj is 32 x 64", "use at most 32"),
    ],
)
def test_adapters_that_do_not_fit_the_model(
    modules: object, rank: int, told: str, fix: str
) -> None:
    section = AdaptersSection(rank=rank, modules=modules)  # type: ignore[arg-type]
    with pytest.raises(RecipeError) as error:
        adapted(section, LINEARS)
    assert says(told, error.value.cause)
    assert says(fix, error.value.fix or "")
    assert "\n" not in str(error.value)


def test_modules_are_named_by_their_last_part_or_more() -> None:
    names = AdaptersSection(rank=4, modules=("k_proj", "mlp.down_proj"))
    assert adapted(names, LINEARS) == ["self_attn.k_proj", "mlp.down_proj"]
    assert adapted(AdaptersSection(rank=4), LINEARS) == [*LINEARS]


def test_a_rank_that_does_not_fit_is_refused_before_a_job_starts() -> None:
    recipe = parse_recipe("", ["model.preset=llama-tiny", "adapters.rank=60000"])
    config = model_config(recipe)
    assert config is not None
    with pytest.raises(RecipeError, match=wording("adds nothing")):
        forecast(recipe, config, 1)


def test_only_adapters_have_gradients_and_a_state() -> None:
    changes = ["model.preset=llama-tiny", "model.dtype=float32"]
    whole, low = parse_recipe("", changes), parse_recipe("", [*changes, "adapters.rank=4"])
    config = model_config(whole)
    assert config is not None
    layers = shape_of(config).layers
    before, after = (
        place_forecast(one, config, lay_out(one, 1, layers), 0) for one in (whole, low)
    )
    trained = trained_parameters(low, config, layers, is_first=True, is_last=True)
    assert sum(map(math.prod, trained)) == 4 * layers * sum(
        sum(one) for one in linears(config).values()
    )
    size = 4 * sum(map(math.prod, trained))
    assert after.weights == before.weights + size
    assert after.gradients == size
    assert after.optimizer == 2 * size + 4 * len(trained)
    assert trained_parameters(whole, config, layers, is_first=True, is_last=True) == parameters(
        config, layers, is_first=True, is_last=True
    )


def test_a_line_tells_what_is_trained() -> None:
    recipe = parse_recipe("", ["model.preset=llama-tiny", "adapters.rank=4"])
    config = {**preset_config(recipe.model), "vocab_size": 300}
    (line,) = shown_adapters(recipe, config)
    assert says("parameters are trained", line)
    assert says("rank 4, alpha 8, of q_proj, k_proj, v_proj, o_proj", line)
    assert shown_adapters(parse_recipe(""), config) == ()


def test_no_gradients_of_frozen_weights_are_counted() -> None:
    shape = shape_of({**preset_config(parse_recipe("").model), "vocab_size": 300})
    whole, low, alone = (
        stage_flops_per_token(shape, 0, layers=2, has_head=True, adapter_values=values)
        for values in (None, 0, 1000)
    )
    assert low == pytest.approx(whole * 2 / 3)
    assert alone - low == 2 * 6 * 1000
