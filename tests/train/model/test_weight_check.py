"""Files of weights held against the config next to them, once and for the whole model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
from safetensors.torch import load_file, save_file

from jupyter_mntrain.families import families
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train.model.decoder import EMBEDDING, HEAD, meta_stage, read_config
from jupyter_mntrain.train.model.stages import build_modules
from jupyter_mntrain.train.model.weights import hold_against_config, weight_names
from tests.train.equality_cases import LAYERS
from tests.train.families import small_config, write_model
from tests.train.ranks import run_ranks
from tests.train.test_command import write_text
from tests.wording import reads, says, wording

CPU = torch.device("cpu")

Holds = Callable[..., list[str]]


@pytest.fixture
def held(tmp_path: Path) -> Holds:
    """Writes files with some weights changed, and holds them against a config."""
    tensors = {name: one.clone() for name, one in _written(tmp_path).items()}

    def hold(
        family: str = "llama",
        dtype: torch.dtype = torch.float32,
        changed: Mapping[str, torch.Tensor | None] | None = None,
        **fields: Any,
    ) -> list[str]:
        now = {name: one for name, one in {**tensors, **(changed or {})}.items() if one is not None}
        save_file(now, tmp_path / "model.safetensors")
        return hold_against_config(tmp_path, small_config(family, **fields), dtype)

    return hold


def _written(directory: Path, family: str = "llama", **fields: Any) -> dict[str, torch.Tensor]:
    write_model(family, directory, **fields)
    return load_file(directory / "model.safetensors")


@pytest.mark.parametrize("family", families())
@pytest.mark.parametrize("tied", [False, True])
def test_names_of_a_model_are_those_of_all_of_its_layers(family: str, tied: bool) -> None:
    config = small_config(family, tie_word_embeddings=tied)
    every = range(LAYERS)
    whole = meta_stage(config, every, first=True, last=True, dtype=torch.float32, attention=None)
    assert sorted(weight_names(config)) == sorted(whole.weights())


@pytest.mark.parametrize("family", families())
def test_what_transformers_writes_needs_no_word(family: str, tmp_path: Path) -> None:
    write_model(family, tmp_path)
    recipe = parse_recipe("", [f"model.path={tmp_path}"])
    assert hold_against_config(tmp_path, read_config(recipe.model), torch.float32) == []


def test_embedding_and_head_are_what_the_config_says(held: Holds, tmp_path: Path) -> None:
    embedding = _written(tmp_path / "other")[EMBEDDING]
    with pytest.raises(RecipeError, match=wording("= true, but lm_head.weight and .* differ")):
        held(tie_word_embeddings=True)
    assert held(changed={HEAD: embedding.clone()}, tie_word_embeddings=True) == []
    assert held(changed={HEAD: None}, tie_word_embeddings=True) == []
    with pytest.raises(RecipeError, match=wording("= false, and .* has no lm_head.weight")):
        held(changed={HEAD: None})


def test_layers_are_counted_and_what_else_there_is_named(held: Holds) -> None:
    name = "model.layers.{}.mlp.up_proj.weight"
    (said,) = held(num_hidden_layers=4)
    assert says(
        r"has 7 layers, config.json says num_hidden_layers = 4: those from 4 on are left", said
    )
    with pytest.raises(RecipeError, match=wording(r"has 7 layers, \S+ says \w+ = 9; layer 7 is")):
        held(num_hidden_layers=9)
    lost = dict.fromkeys(_layer(3))
    with pytest.raises(RecipeError, match=wording(r"has 6 layers, \S+ says \w+ = 7; layer 3 is")):
        held(changed=lost)
    computed = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}
    assert held(changed=computed) == []
    more = {name.format(9): torch.ones(2), "model.layers.3.new": torch.ones(2), "x": torch.ones(1)}
    layers, others = held(changed=more)
    assert says("those from 7 on are left out", layers)
    assert reads(r"2 tensors of \S+ are not in this model: model.layers.3.new, x", others)


def _layer(index: int) -> list[str]:
    every = weight_names(small_config("llama"))
    return [name for name in every if name.startswith(f"model.layers.{index}.")]


def test_layers_are_counted_by_any_names_of_them(tmp_path: Path) -> None:
    tensors = _written(tmp_path, "gpt2")
    names = {name: name.removeprefix("transformer.") for name in tensors}
    save_file({names[name]: one for name, one in tensors.items()}, tmp_path / "model.safetensors")
    assert hold_against_config(tmp_path, small_config("gpt2"), torch.float32) == []
    with pytest.raises(RecipeError, match=wording(r"has 7 layers, \S+ says n_layer = 8")):
        hold_against_config(tmp_path, small_config("gpt2", n_layer=8), torch.float32)


def test_a_dtype_is_told_where_it_loses_something(held: Holds) -> None:
    halves = {name: torch.ones(2, dtype=torch.bfloat16) for name in _layer(0)}
    assert held(dtype=torch.float32, changed=halves) == []
    (said,) = held(dtype=torch.bfloat16)
    assert says("is float32; trained in bfloat16, which rounds the weights", said)
    every: dict[str, torch.Tensor | None] = {
        name: torch.ones(2, dtype=torch.bfloat16) for name in weight_names(small_config("llama"))
    }
    assert held(dtype=torch.bfloat16, changed=every) == []
    for kind in (torch.float16, torch.float64):
        (said,) = held(dtype=torch.bfloat16, changed=every | {HEAD: torch.ones(2, dtype=kind)})
        assert reads(rf"1 of \d+ tensors of \S+ are {str(kind)[6:]}; trained in bfloat16", said)
    (said,) = held(dtype=torch.float32, changed={HEAD: torch.ones(2, dtype=torch.float64)})
    assert says("float64; trained in float32", said)
    assert held(dtype=torch.float32, changed={HEAD: torch.ones(2, dtype=torch.float16)}) == []


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.float8_e4m3fn])
def test_numbers_that_stand_for_weights_are_refused(kind: torch.dtype, held: Holds) -> None:
    """Taken as they are they would be other weights."""
    with pytest.raises(RecipeError, match=wording("model.norm.weight in model.safetensors is")):
        held(changed={"model.norm.weight": torch.ones(32).to(kind)})


@pytest.mark.parametrize("source", ["tied", "both-written", "untied", "fresh-tied", "fresh-untied"])
@pytest.mark.parametrize("adapters", [False, True])
def test_no_two_weights_share_memory(source: str, adapters: bool, tmp_path: Path) -> None:
    """An optimizer would update one of them twice. On each number of stages."""
    is_tied = not source.endswith("untied")
    if source.startswith("fresh"):
        words = ["model.preset=llama-tiny", f"model.tie_embeddings={str(is_tied).lower()}"]
    else:
        tensors = _written(tmp_path, tie_word_embeddings=is_tied)
        if source == "both-written":
            tensors[HEAD] = tensors[EMBEDDING].clone()
            save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
        words = [f"model.path={tmp_path}"]
    if adapters:
        words += ["adapters.rank=4", 'adapters.train_whole=["embedding","head"]']
    recipe = parse_recipe("", [*words, "pipeline.split=even"])
    config = read_config(recipe.model, 320)
    for count in (1, 2, 3):
        layout = lay_out(recipe, count, config.num_hidden_layers)
        for rank in range(count):
            modules = build_modules(recipe, config, layout, rank, CPU).values()
            held = {id(one): one for module in modules for one in module.parameters()}
            spans = sorted((one.data_ptr(), one.nbytes) for one in held.values())
            for (begin, size), (after, _) in pairwise(spans):
                assert begin + size <= after
            names = [name for module in modules for name in module.weights()]
            assert len(names) == len(held), "each is listed once"
            assert not (is_tied and {EMBEDDING, HEAD} <= {*names})


@pytest.mark.slow
def test_it_is_said_once_and_alike_on_each_number_of_ranks(tmp_path: Path) -> None:
    model = tmp_path / "model"
    tensors = _written(model)
    more = {"model.layers.3.new": torch.ones(2)}
    save_file(tensors | more, model / "model.safetensors", metadata={"format": "pt"})
    text = write_text(tmp_path / "text")
    words = [
        *(f"model.path={model}", "model.dtype=bfloat16", f"data.source={text}"),
        *("data.tokenizer=train", "data.vocabulary_size=300", "data.sequence_length=16"),
        *("train.steps=1", "train.batch_size=4", "train.device=cpu", "pipeline.split=even"),
        *("report.to=[]", "output.at_end=false", "checkpoint.at_end=false"),
    ]
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("")
    options = [word for one in words for word in ("--set", one)]

    def run(layers: int, ranks: int) -> list[list[str]]:
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"num_hidden_layers": layers}))
        ended = run_ranks(recipe, ["a"] * ranks, *options)
        assert {one.exit_code for one in ended} == ({0} if layers < 8 else {2}), ended
        return [(one.out + one.err).splitlines() for one in ended]

    told = []
    for ranks in (1, 2, 3):
        first, *others = run(6, ranks)
        told.append([line for line in first if line.startswith("weights: ")])
        assert not [line for lines in others for line in lines if line.startswith("weights: ")]
    assert len(told[0]) == 3
    assert told[0] == told[1] == told[2]
    refused = {line for ranks in (1, 2, 3) for lines in run(8, ranks) for line in lines if line}
    refused = {line for line in refused if "layers" in line}
    assert len(refused) == 1
    assert says("has 7 layers, config.json says num_hidden_layers = 8", refused.pop())
