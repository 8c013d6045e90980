from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from jupyter_mntrain.telemetry.callbacks.batches import (
    BatchMeter,
    model_flops,
    parameter_count,
    token_shape,
)
from jupyter_mntrain.telemetry.formulas import layer_windows, stage_flops_per_token
from jupyter_mntrain.train.model.decoder import model_shape
from tests.telemetry.callbacks.conftest import TINY


def ids(sequences: int, length: int) -> torch.Tensor:
    return torch.zeros(sequences, length, dtype=torch.long)


@pytest.mark.parametrize(
    ("batch", "shape"),
    [
        ({"input_ids": ids(3, 5), "labels": ids(3, 5)}, (3, 5)),
        ({"attention_mask": ids(2, 4)}, (2, 4)),
        ({"inputs_embeds": torch.zeros(2, 4, 8)}, (2, 4)),
        ((ids(2, 7), ids(2, 7)), (2, 7)),
        ([ids(2, 7)], (2, 7)),
        (ids(4, 4), (4, 4)),
        ({"pixel_values": torch.zeros(2, 3, 8, 8)}, None),
        ((torch.zeros(2, 8), torch.zeros(2, dtype=torch.long)), None),
        ((), None),
        ("text", None),
        (None, None),
    ],
)
def test_a_batch_tells_its_tokens_or_nothing(batch: object, shape: tuple[int, int] | None) -> None:
    assert token_shape(batch) == shape


def test_a_llama_has_the_flops_of_the_built_in_trainers_formula(decoder: LlamaForCausalLM) -> None:
    flops = model_flops(decoder)
    assert flops is not None
    shape = model_shape(decoder.config)
    for length in (8, 128):
        assert flops(length) == stage_flops_per_token(shape, length, layers=2, has_head=True)


def test_a_decoder_inside_another_module_is_found(decoder: LlamaForCausalLM) -> None:
    whole, inside = model_flops(decoder), model_flops(nn.ModuleDict({"model": decoder}))
    assert whole is not None
    assert inside is not None
    assert whole(8) == inside(8)


def test_gpt2s_own_linear_layers_count() -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=16, n_layer=2, n_head=4))
    flops = model_flops(model)
    assert flops is not None
    matrices = 2 * (16 * 48 + 16 * 16 + 16 * 64 + 64 * 16) + 16 * 64
    assert flops(10) == 6 * matrices + 12 * 2 * 16 * 10


@pytest.mark.parametrize(
    ("windows", "seen"),
    [
        ({}, (128, 128)),
        ({"sliding_window": 64}, (64, 64)),
        ({"sliding_window": 64, "use_sliding_window": False}, (128, 128)),
        (
            {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]},
            (64, 128),
        ),
        ({"sliding_window": 4096}, (128, 128)),
    ],
)
def test_a_layer_that_sees_a_window_has_the_flops_of_that(
    decoder: LlamaForCausalLM, windows: dict[str, object], seen: tuple[int, ...]
) -> None:
    config = decoder.config
    for name, value in windows.items():
        setattr(config, name, value)
    assert [min(128, one or 128) for one in layer_windows(config)] == list(seen)
    flops, mean = model_flops(decoder), sum(seen) / 2
    assert flops is not None
    expected = stage_flops_per_token(model_shape(config), mean, layers=2, has_head=True)
    assert flops(128) == expected


def test_a_formula_that_would_be_wrong_is_not_used(decoder: LlamaForCausalLM) -> None:
    assert model_flops(nn.Linear(4, 4)) is None
    assert model_flops(MixtralForCausalLM(MixtralConfig(**TINY, num_local_experts=2))) is None
    assert model_flops(T5ForConditionalGeneration(T5Config(d_model=16, d_ff=16, d_kv=4))) is None
    decoder.model.layers[0].requires_grad_(requires_grad=False)
    assert model_flops(decoder) is None


def test_a_step_of_several_batches_adds_up_and_the_next_begins_at_nothing() -> None:
    meter = BatchMeter(lambda length: 10.0 * length)
    assert meter.add({"input_ids": ids(2, 4)}) == 4
    assert meter.add(ids(1, 8)) == 8
    assert meter.take() == (16, 8 * 40.0 + 8 * 80.0)
    assert meter.add(torch.zeros(2, 2)) is None
    assert meter.take() == (None, None)


def test_parameters_of_a_tied_head_count_once(decoder: LlamaForCausalLM) -> None:
    assert parameter_count(decoder) == decoder.num_parameters()
