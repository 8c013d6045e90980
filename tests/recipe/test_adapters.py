"""Adapters that do not fit are refused in one line, and what they hold is known without torch."""

from __future__ import annotations

import json
import math

import pytest

from jupyter_mntrain.families import linears, parameters, shape_of
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.builtin import CONFIGS
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import (
    adapted_linears,
    forecast,
    model_config,
    place_forecast,
    shown_adapters,
    trained_parameters,
)
from jupyter_mntrain.recipe.parse import parse_recipe, preset_config
from jupyter_mntrain.recipe.sections import AdaptersSection, adapted
from jupyter_mntrain.telemetry.formulas import stage_flops_per_token
from tests.wording import says, wording

QUANTIZED = "adapters.quantize_base=nf4"
LINEARS = {"self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "mlp.down_proj": (64, 160)}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (("adapters.alpha=16",), "there are no adapters, because adapters.rank is 0"),
        (("adapters.dropout=0.1",), "set a rank, for example 16, or leave dropout out"),
        (("adapters.rank=4", "adapters.modules=[]"), "no layer would have an adapter"),
        (("adapters.quantize_base=nf4",), "rank, for example 16, or leave quantize_base out"),
        (
            ("adapters.rank=4", "adapters.quantize_base=nf4", "data_parallel.shards=2"),
            "use data_parallel.replicas, or leave quantize_base out",
        ),
        (('adapters.train_whole=["head"]',), "rank, for example 16, or leave train_whole out"),
        (("adapters.rank=4", 'tokens.add=["<|im_start|>"]'), "rows of added tokens would not be"),
        (
            ("adapters.rank=4", 'adapters.train_whole=["head"]', 'tokens.add=["<a>"]'),
            "set adapters.train_whole = .*, or use a model",
        ),
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


@pytest.mark.parametrize(
    ("is_tied", "ends", "count"),
    [
        (True, ["head"], 1),
        (True, ["embedding", "head"], 1),
        (False, ["embedding"], 1),
        (False, ["embedding", "head"], 2),
    ],
)
def test_ends_that_are_trained_whole_have_gradients_and_a_state(
    ends: list[str], count: int, *, is_tied: bool
) -> None:
    tied = f"model.tie_embeddings={str(is_tied).lower()}"
    changes = ["model.preset=llama-tiny", "model.dtype=float32", "adapters.rank=4", tied]
    low = parse_recipe("", changes)
    whole = parse_recipe("", [*changes, f"adapters.train_whole={json.dumps(ends)}"])
    config = model_config(low)
    assert config is not None
    end = count * config["vocab_size"] * config["hidden_size"]
    before, after = (forecast(one, config, 1)[0] for one in (low, whole))
    assert after.weights == before.weights
    assert after.gradients == before.gradients + 4 * end
    assert after.optimizer == before.optimizer + 2 * 4 * end + 4 * count
    assert says("whole", shown_adapters(whole, config)[0])
    for ranks in (1, 2):
        places = [place_forecast(whole, config, lay_out(whole, ranks, 4), n) for n in range(ranks)]
        copies = ranks if is_tied else 1  # both stages have one
        gradients = sum(one.gradients for one in places)
        assert gradients == before.gradients + 4 * end * copies


def test_weights_that_are_no_whole_blocks_are_refused_by_name() -> None:
    section = AdaptersSection(rank=4, quantize_base="nf4")
    with pytest.raises(RecipeError, match=wording("gate is 12 x 8, which is not a whole number")):
        adapted(section, {"mlp.gate": (12, 8)})
    assert adapted(section, LINEARS) == [*LINEARS]


def test_transposed_weights_are_refused_before_a_job_starts() -> None:
    config = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 300}
    changes = ["model.preset=llama-tiny", "adapters.rank=4", "adapters.quantize_base=nf4"]
    recipe = parse_recipe("", changes)
    with pytest.raises(RecipeError, match=wording("gpt2 holds its weights transposed")):
        adapted_linears(recipe, config)


def test_weights_in_4_bits_take_little_more_than_half_a_byte_each() -> None:
    changes = ["model.dtype=bfloat16", "adapters.rank=16"]
    whole, low = (parse_recipe("", [*changes, *more]) for more in ([], [QUANTIZED]))
    config = CONFIGS["7b"]
    before, after = (forecast(one, config, 1)[0] for one in (whole, low))
    values = 32 * sum(map(math.prod, linears(config).values()))
    assert before.weights - after.weights == pytest.approx((2 - 0.5 - 1 / 64) * values, rel=1e-3)
    assert (after.gradients, after.optimizer) == (before.gradients, before.optimizer)
    assert before.dequantized == 0 < after.dequantized


def test_a_line_tells_what_is_trained() -> None:
    recipe = parse_recipe("", ["model.preset=llama-tiny", "adapters.rank=4"])
    config = {**preset_config(recipe.model), "vocab_size": 300}
    (line,) = shown_adapters(recipe, config)
    assert says("parameters are trained", line)
    assert says("rank 4, alpha 8, of q_proj, k_proj, v_proj, o_proj", line)
    assert "4 bits" not in line
    assert shown_adapters(parse_recipe(""), config) == ()
    low = parse_recipe("", ["model.preset=llama-tiny", "adapters.rank=4", QUANTIZED])
    assert says("whose frozen weights are kept in 4 bits", shown_adapters(low, config)[0])


def test_no_gradients_of_frozen_weights_are_counted() -> None:
    shape = shape_of({**preset_config(parse_recipe("").model), "vocab_size": 300})
    whole, low, alone = (
        stage_flops_per_token(shape, 0, layers=2, has_head=True, adapter_values=values)
        for values in (None, 0, 1000)
    )
    assert low == pytest.approx(whole * 2 / 3)
    assert alone - low == 2 * 6 * 1000
