"""Adapters: the same in every split, merged as peft merges, and loaded by peft."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
from transformers import AutoModelForCausalLM

from jupyter_mntrain.families import linears
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.checkpoint import RunFigures
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import ModelSection, Recipe
from jupyter_mntrain.train.checkpoint.export import FOLDER, ModelExport
from jupyter_mntrain.train.data.tokens import random_tokens, untrained_tokenizer
from jupyter_mntrain.train.model import adapters
from jupyter_mntrain.train.model.adapters import is_adapter, is_quantized, linears_among
from jupyter_mntrain.train.model.decoder import StageModule, meta_stage, read_config
from jupyter_mntrain.train.model.stages import build_modules
from jupyter_mntrain.train.model.weights import fingerprint
from jupyter_mntrain.train.world import join_world
from tests.train.families import SMALL, small_config, write_model
from tests.train.reference import OneProcess
from tests.wording import wording

CPU = torch.device("cpu")
VOCABULARY = 300


def recipe_of(*changes: str) -> Recipe:
    given = ("model.preset=llama-tiny", "adapters.rank=4", "train.device=cpu")
    return parse_recipe("", [*given, "model.tie_embeddings=true", *changes])


def stages(recipe: Recipe, world_size: int) -> list[StageModule]:
    config = read_config(recipe.model, VOCABULARY)
    layout = lay_out(recipe, world_size, config.num_hidden_layers)
    built = [build_modules(recipe, config, layout, rank, CPU) for rank in range(world_size)]
    return [module for of_rank in built for module in of_rank.values()]


def trained(recipe: Recipe) -> StageModule:
    """Its second matrices are no longer zero."""
    (stage,) = stages(recipe, 1)
    generator = torch.Generator().manual_seed(1)
    for one in stage.trained().values():
        one.data.add_(torch.randn(one.shape, generator=generator), alpha=0.05)
    return stage


def test_adapters_are_all_that_is_trained_and_begin_alike_in_every_split() -> None:
    recipe = recipe_of()
    (whole,) = stages(recipe, 1)
    assert whole.trained().keys() == {name for name in whole.weights() if is_adapter(name)}
    assert "model.layers.0.self_attn.q_proj.weight" in whole.weights()
    parts = {name: one for stage in stages(recipe, 2) for name, one in stage.trained().items()}
    assert parts.keys() == whole.trained().keys()
    for name, one in whole.trained().items():
        assert torch.equal(one, parts[name])
        assert bool(one.any()) is ("lora_A" in name)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft asks for it
@pytest.mark.parametrize("count", [1, 2])
def test_dropout_is_drawn_as_peft_draws_it(count: int) -> None:
    """Over stages, which draw one after the other here."""
    recipe = recipe_of("adapters.dropout=0.4")
    parts = stages(recipe, count)
    whole = OneProcess(recipe, read_config(recipe.model, VOCABULARY))
    theirs, generator = whole.weights(), torch.Generator().manual_seed(1)
    for part in parts:
        for name, one in part.trained().items():
            one.data.add_(torch.randn(one.shape, generator=generator), alpha=0.05)
            theirs[name].copy_(one.data)
    ids = torch.randint(VOCABULARY, (2, 12), generator=generator)
    positions, ends = torch.arange(12).expand(2, -1), torch.tensor([[12], [12]], dtype=torch.int32)

    def ours() -> torch.Tensor:
        value = ids
        for part in parts:
            value = part(value, positions, ends, 12)
        return value

    torch.manual_seed(2)
    expected = whole.model(input_ids=ids, use_cache=False).logits
    torch.manual_seed(2)
    torch.testing.assert_close(ours(), expected, rtol=0, atol=1e-5)
    assert not torch.allclose(ours(), expected, rtol=0, atol=1e-3)


IN_4_BITS = ("adapters.quantize_base=nf4", "model.tie_embeddings=false")


def in_4_bits(stage: StageModule) -> set[str]:
    return {name for name, one in stage.weights().items() if is_quantized(one)}


def test_weights_beside_adapters_are_kept_in_4_bits_and_no_others() -> None:
    (whole,) = stages(recipe_of(*IN_4_BITS), 1)
    assert in_4_bits(whole) == {
        name.replace("lora_A.", "") for name in whole.trained() if "lora_A" in name
    }
    (some,) = stages(recipe_of(*IN_4_BITS, 'adapters.modules=["o_proj"]'), 1)
    assert in_4_bits(some) == {name for name in some.weights() if name.endswith("o_proj.weight")}
    assert not in_4_bits(stages(recipe_of(), 1)[0])
    for part in stages(recipe_of(*IN_4_BITS), 2):
        for name in in_4_bits(part):
            one: Any = part.weights()[name]
            same: Any = whole.weights()[name]
            assert torch.equal(one.get_original_weight(), same.get_original_weight())


def test_only_a_few_weights_are_whole_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "PART_BYTES", 1)
    recipe = recipe_of(*IN_4_BITS)
    config = read_config(recipe.model, VOCABULARY)
    asked: list[set[str]] = []

    def made(empty: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        asked.append({*empty})
        return {name: torch.ones(one.shape, dtype=one.dtype) for name, one in empty.items()}

    layout = lay_out(recipe, 1, config.num_hidden_layers)
    stage = build_modules(recipe, config, layout, 0, CPU, weights=made)[0]
    assert [len(one) for one in asked[1:]] == [1] * len(in_4_bits(stage))


def test_transposed_weights_are_refused_by_name(tmp_path: Path) -> None:
    write_model("gpt2", tmp_path)
    recipe = parse_recipe(
        "", [f"model.path={tmp_path}", "adapters.rank=4", "adapters.quantize_base=nf4"]
    )
    with pytest.raises(RecipeError, match=wording("gpt2 holds its weights transposed")):
        stages(recipe, 1)


def test_without_torchao_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    monkeypatch.setitem(sys.modules, "torchao.dtypes", None)
    with pytest.raises(RecipeError, match=r"jupyter-mntrain\[memory\]"):
        stages(recipe_of(*IN_4_BITS), 1)


def test_a_torchao_that_is_too_old_for_peft_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from peft.import_utils import is_torchao_available

    is_torchao_available.cache_clear()
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.13.0")
    with pytest.raises(RecipeError, match=wording("--upgrade peft torchao")):
        stages(recipe_of(), 1)


def test_a_module_that_the_model_lacks_is_one_line() -> None:
    with pytest.raises(RecipeError, match=wording("use q_proj")):
        stages(recipe_of('adapters.modules=["q_prj"]'), 1)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft asks for it
@pytest.mark.parametrize("base_in", ["none", "nf4"])
def test_peft_and_transformers_load_what_is_written(tmp_path: Path, base_in: str) -> None:
    """Next to weights in 4 bits the adapter was trained alongside what these stand for."""
    from peft import PeftModel

    changes = ("adapters.alpha=12", f"adapters.quantize_base={base_in}")
    recipe = recipe_of(f"output.directory={tmp_path / 'out'}", *changes)
    stage = trained(recipe)
    config: Any = stage.causal.config
    base = AutoModelForCausalLM.from_config(
        read_config(recipe.model, VOCABULARY), dtype=torch.float32, attn_implementation="sdpa"
    )
    (frozen,) = stages(recipe_of("adapters.rank=0"), 1)
    whole = {name: one.detach() for name, one in frozen.weights().items()}
    for name in in_4_bits(stage):
        four: Any = stage.weights()[name]
        assert not torch.equal(whole[name], four.get_original_weight())
        whole[name] = four.get_original_weight()
    base.load_state_dict(whole, strict=False)
    ids = torch.randint(VOCABULARY, (2, 12), generator=torch.Generator().manual_seed(2))
    positions = torch.arange(12).expand(2, -1)
    with torch.no_grad():
        expected = stage(ids, positions)
        assert not torch.allclose(expected, base(ids).logits, atol=1e-3)
    tokens = random_tokens(recipe.data, 4, VOCABULARY, untrained_tokenizer())
    with join_world("cpu", 60.0) as world:
        export = ModelExport(recipe, world, config, tokens, say=lambda _: None)
        weights: dict[str, torch.Tensor] = {**stage.weights()}
        export.write(weights, RunFigures(steps=1), lambda *_: None)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    adapter = PeftModel.from_pretrained(base, tmp_path / "out" / FOLDER).eval()
    with torch.no_grad():
        for one in (merged, adapter, adapter.merge_and_unload()):
            assert torch.allclose(one(ids).logits, expected, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "qwen3", *SMALL])
def test_a_family_names_its_linear_layers(family: str) -> None:
    if family in SMALL:
        config = small_config(family)
    else:
        config = read_config(ModelSection(preset=f"{family}-tiny"), VOCABULARY)
    layers = range(config.num_hidden_layers)
    stage = meta_stage(config, layers, first=True, last=True, dtype=torch.float32, attention=None)
    assert linears(config.to_dict()) == linears_among(stage.weights(), stage.family)


def test_other_weights_of_the_same_shapes_have_another_fingerprint(tmp_path: Path) -> None:
    (stage,) = stages(parse_recipe("", ["model.preset=llama-tiny"]), 1)
    found = []
    for name, change in (("a", 0.0), ("again", 0.0), ("b", 1e-3)):
        with torch.no_grad():
            stage.causal.lm_head.weight.add_(change)
        stage.causal.save_pretrained(tmp_path / name)
        found.append(fingerprint(tmp_path / name))
    assert found[0] == found[1] != found[2]
