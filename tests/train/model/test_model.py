from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from jupyter_mntrain.families import families
from jupyter_mntrain.families.presets import FAMILIES, PRESETS
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.sections import DataSection, ModelSection, PipelineSection, Recipe
from jupyter_mntrain.telemetry.formulas import stage_flops_per_token
from jupyter_mntrain.train.model import weights
from jupyter_mntrain.train.model.decoder import (
    EMBEDDING,
    HEAD,
    StageModule,
    model_shape,
    read_config,
)
from jupyter_mntrain.train.model.stages import build_modules
from jupyter_mntrain.train.model.weights import load_weights
from tests.searches import runs_all
from tests.wording import says, wording

CPU = torch.device("cpu")
VOCABULARY = 300


def recipe_of(preset: str = "llama-tiny", **fields: Any) -> Recipe:
    return Recipe(
        model=ModelSection(preset=preset, **fields),
        data=DataSection(vocabulary_size=VOCABULARY),
        pipeline=PipelineSection(split="even"),
    )


def stages(recipe: Recipe, world_size: int) -> tuple[Any, list[StageModule]]:
    config = read_config(recipe.model, VOCABULARY)
    layout = lay_out(recipe, world_size, config.num_hidden_layers)
    modules = [build_modules(recipe, config, layout, rank, CPU) for rank in range(world_size)]
    return config, [module for of_rank in modules for module in of_rank.values()]


def chained(parts: list[StageModule], ids: torch.Tensor) -> torch.Tensor:
    value = ids
    positions = torch.arange(ids.shape[1]).expand(ids.shape[0], -1)
    for part in parts:
        value = part(value, position_ids=positions)
    return value


def saved(preset: str, directory: Path, *, shards: bool = False, tied: bool = False) -> Any:
    """A model as transformers writes it, and the model itself."""
    torch.manual_seed(3)
    recipe = recipe_of(preset, layers=6, tie_embeddings=tied)
    model = AutoModelForCausalLM.from_config(read_config(recipe.model, VOCABULARY))
    model.save_pretrained(directory, max_shard_size="60KB" if shards else "1GB")
    return model.eval()


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(VOCABULARY, (2, 12), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [False, True])
def test_stages_of_a_saved_model_are_the_model(
    family: str, tied: bool, tmp_path: Path, ids: torch.Tensor
) -> None:
    model = saved(f"{family}-tiny", tmp_path, shards=True, tied=tied)
    recipe = Recipe(
        model=ModelSection(path=str(tmp_path)), pipeline=PipelineSection(split=(1, 3, 2))
    )
    _, parts = stages(recipe, 3)
    with torch.no_grad():
        assert torch.equal(chained(parts, ids), model(ids).logits)
    names = [set(part.weights()) for part in parts]
    expected = {name for name, _ in model.named_parameters()} | ({HEAD} if tied else set())
    assert set.union(*names) == expected
    assert sum(map(len, names)) == len(expected)


def test_a_stage_needs_only_the_files_with_its_own_tensors(tmp_path: Path) -> None:
    saved("llama-tiny", tmp_path, shards=True)
    recipe = Recipe(
        model=ModelSection(path=str(tmp_path)), pipeline=PipelineSection(split=(2, 2, 2))
    )
    config = read_config(recipe.model)
    layout = lay_out(recipe, 3, 6)
    held = {"model.layers.2.", "model.layers.3."}
    for path in tmp_path.glob("model-*.safetensors"):
        with safe_open(path, framework="pt") as file:
            is_needed = any(key.startswith(tuple(held)) for key in file.keys())  # noqa: SIM118
        if not is_needed:
            path.unlink()
    assert len(list(tmp_path.glob("model-*.safetensors"))) < 10
    middle = build_modules(recipe, config, layout, 1, CPU)[1]
    assert {name[:15] for name in middle.weights()} == held
    lists = wording("18 of 26 files that model.safetensors.index.json lists are missing")
    with pytest.raises(RecipeError, match=lists):
        build_modules(recipe, config, layout, 0, CPU)


def test_only_own_tensors_are_read_from_a_single_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved("qwen2-tiny", tmp_path)
    read: list[str] = []

    class Watched:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.opened = safe_open(*args, **kwargs)

        def __enter__(self) -> Any:
            self.file = self.opened.__enter__()
            return self

        def __exit__(self, *error: object) -> None:
            self.opened.__exit__(*error)

        def keys(self) -> Any:
            return self.file.keys()

        def get_tensor(self, name: str) -> torch.Tensor:
            read.append(name)
            return self.file.get_tensor(name)

    monkeypatch.setattr(weights, "safe_open", Watched)
    recipe = Recipe(model=ModelSection(path=str(tmp_path)))
    config = read_config(recipe.model)
    layout = lay_out(recipe, 2, 6)
    module = build_modules(recipe, config, layout, 1, CPU)[1]
    assert sorted(read) == sorted(module.weights())
    assert EMBEDDING not in read


def test_loaded_weights_take_the_recipes_dtype(tmp_path: Path) -> None:
    saved("mistral-tiny", tmp_path)
    recipe = Recipe(model=ModelSection(path=str(tmp_path), dtype="bfloat16"))
    _, parts = stages(recipe, 2)
    assert {p.dtype for part in parts for p in part.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("preset", ["llama-tiny", "qwen3-tiny"])
def test_fresh_weights_do_not_depend_on_the_split(preset: str) -> None:
    recipe = recipe_of(preset, tie_embeddings=True)
    _, (whole,) = stages(recipe, 1)
    reference = whole.weights()
    for world_size in (2, 3, 4):
        _, parts = stages(recipe, world_size)
        for part in parts:
            for name, value in part.weights().items():
                assert torch.equal(value, reference[EMBEDDING if name == HEAD else name])


def test_seeds_make_different_models_of_the_expected_spread() -> None:
    recipe = recipe_of()
    _, (one,) = stages(recipe, 1)
    other_seed = Recipe(model=recipe.model, train=type(recipe.train)(seed=1))
    _, (two,) = stages(other_seed, 1)
    weight, other = one.weights()[EMBEDDING], two.weights()[EMBEDDING]
    assert not torch.equal(weight, other)
    assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert torch.equal(one.weights()["model.norm.weight"], torch.ones(64))


def test_a_rank_makes_only_its_own_layers() -> None:
    _, parts = stages(recipe_of(), 2)
    counts = [sum(p.numel() for p in part.parameters()) for part in parts]
    _, (whole,) = stages(recipe_of(), 1)
    assert sum(counts) == sum(p.numel() for p in whole.parameters())
    assert not any(p.is_meta for part in parts for p in part.parameters())
    assert not any(b.is_meta for part in parts for b in part.buffers())


def write(directory: Path, name: str, text: str) -> str:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text)
    return str(directory)


def test_directories_that_cannot_be_used(tmp_path: Path) -> None:
    def refusal(path: str) -> str:
        with pytest.raises(RecipeError) as caught:
            read_config(ModelSection(path=path))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert says("no such directory", refusal(str(tmp_path / "gone")))
    assert says("no config.json", refusal(str(tmp_path)))
    bloom = write(tmp_path / "bloom", "config.json", '{"model_type": "bloom"}')
    assert says("config.json: the model family 'bloom' is not described", refusal(bloom))
    assert "docs/families.md" in refusal(bloom)
    strange = write(tmp_path / "new", "config.json", '{"model_type": "brandnew"}')
    assert "brandnew" in refusal(strange)
    experts = write(
        tmp_path / "mixtral", "config.json", '{"model_type": "mixtral", "num_local_experts": 8}'
    )
    assert says("mixture of experts", refusal(experts))
    four_bits = '{"model_type": "llama", "quantization_config": {"quant_method": "awq"}}'
    assert says("quantized (awq)", refusal(write(tmp_path / "4", "config.json", four_bits)))
    seeing = write(
        tmp_path / "seeing", "config.json", '{"model_type": "gemma3", "text_config": {}}'
    )
    assert says("a model of text and images", refusal(seeing))
    both_ways = '{"model_type": "gemma3_text", "use_bidirectional_attention": true}'
    assert says("not supported", refusal(write(tmp_path / "both", "config.json", both_ways)))
    assert says("an adapter", refusal(write(tmp_path / "lora", "adapter_config.json", "{}")))
    assert str(tmp_path) in refusal(write(tmp_path / "broken", "config.json", "{"))


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    saved("llama-tiny", tmp_path)
    like = {"model.norm.weight": torch.empty(64, device="meta")}

    def load(like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return load_weights(tmp_path, like, families()["llama"], device=CPU)

    assert load(like)["model.norm.weight"].shape == (64,)
    with pytest.raises(RecipeError, match=wording(r"is \(64,\), its config says \(32,\)")):
        load({"model.norm.weight": torch.empty(32)})
    with pytest.raises(RecipeError, match=wording(r"the tensor model\.layers\.9\S* is missing")):
        load({"model.layers.9.x": torch.empty(1)})
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(RecipeError, match=wording(r"the tensor model\.norm\S* is missing")):
        load(like)
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(RecipeError, match=wording("cannot read model")):
        load(like)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(RecipeError, match=wording("neither")):
        load(like)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named(tmp_path: Path, value: float) -> None:
    tensors = {
        name: one.clone() for name, one in saved("llama-tiny", tmp_path).state_dict().items()
    }
    tensors["model.norm.weight"][3] = value
    save_file(tensors, tmp_path / "model.safetensors")
    like = {name: torch.empty_like(one, device="meta") for name, one in tensors.items()}
    with pytest.raises(
        RecipeError, match=wording(r"model\.norm\.weight in model.safetensors has NaN")
    ):
        load_weights(tmp_path, like, families()["llama"], device=CPU)


def is_tried(preset: str) -> bool:
    """Each family is small, too; one is large."""
    return runs_all() or not preset.endswith("-1b") or preset == "llama-1b"


@pytest.mark.parametrize(
    "preset",
    [
        pytest.param(p, marks=pytest.mark.slow if p.endswith("-1b") else ())
        for p in filter(is_tried, PRESETS)
    ],
)
def test_formula_of_each_stage_agrees_with_torchs_flop_counter(preset: str) -> None:
    length, layers = 64, 3  # work is the same in every layer, so few of them do
    # torch counts nothing for the fused attention kernel of CPUs.
    recipe = recipe_of(preset, layers=layers, attention="eager")
    config, parts = stages(recipe, 2)
    shape = model_shape(config)
    value = torch.zeros(1, length, dtype=torch.int64)
    for part in parts:
        with FlopCounterMode(display=False) as counter:
            out = part(value, position_ids=torch.arange(length)[None])
            out.sum().backward()
        ours = stage_flops_per_token(shape, length, layers=len(part.layers), has_head=part.last)
        assert ours == pytest.approx(counter.get_total_flops() / length, rel=0.01)
        value = out.detach().requires_grad_()


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_rank_says_how_many_of_its_own_bytes_it_holds(tmp_path: Path, *, is_saved: bool) -> None:
    saved("llama-tiny", tmp_path)
    recipe = Recipe(model=ModelSection(path=str(tmp_path))) if is_saved else recipe_of()
    heard: list[tuple[str, float, float | None]] = []

    def hear(what: str, done: float, total: float | None = None, unit: str = "") -> None:
        assert unit == "B"
        heard.append((what, done, total))

    config = read_config(recipe.model, VOCABULARY)
    layout = lay_out(recipe, 2, config.num_hidden_layers)
    (stage,) = build_modules(recipe, config, layout, 1, CPU, hear).values()
    size = sum(one.nbytes for one in stage.weights().values())
    what = "loading the model" if is_saved else "making the weights"
    assert heard[0] == (what, 0, size)
    assert heard[-1] == (what, size, size)
    assert len(heard) == 1 + len(stage.weights())
