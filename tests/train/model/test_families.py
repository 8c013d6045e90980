"""Families that are only described: their stages in one process, compared with transformers."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from jupyter_mntrain.families import families, parameters
from jupyter_mntrain.families.presets import FAMILIES
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import StageShape, model_config, saved_bytes
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.telemetry.formulas import stage_flops_per_token
from jupyter_mntrain.train.model.decoder import (
    HEAD,
    StageModule,
    model_shape,
    published_config,
    read_config,
)
from jupyter_mntrain.train.model.losses import make_loss
from jupyter_mntrain.train.model.stages import build_modules
from jupyter_mntrain.train.prepare import refuse_unfit
from tests.recipe.test_memory import held_bytes
from tests.rows import same_rows
from tests.searches import runs_all
from tests.train.families import LAYERS, SMALL, VOCABULARY, whole_model, write_model
from tests.wording import wording

CPU = torch.device("cpu")
LENGTHS, LENGTH, STEPS = (7, 13), 20, 2
"""Two documents of a sequence."""
POSITIONS = torch.cat([torch.arange(one) for one in LENGTHS]).expand(2, -1)
ENDS = torch.tensor([[7, LENGTH]], dtype=torch.int32).expand(2, -1)

everywhere = pytest.mark.parametrize("family", SMALL)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for family in SMALL:
        write_model(family, folder / family)
    return folder


def stages_of(directory: Path, count: int, *changes: str) -> tuple[Any, list[StageModule]]:
    recipe = parse_recipe("", [f"model.path={directory}", "pipeline.split=even", *changes])
    config = read_config(recipe.model)
    layout = lay_out(recipe, count, LAYERS)
    built = [build_modules(recipe, config, layout, rank, CPU) for rank in range(count)]
    return config, [stage for of_rank in built for stage in of_rank.values()]


def batch(step: int) -> torch.Tensor:
    return torch.randint(VOCABULARY, (2, LENGTH + 1), generator=torch.Generator().manual_seed(step))


def theirs(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """transformers' loss; each document is shown to it alone."""
    total = torch.zeros(())
    for inputs, labels in zip(
        ids[:, :-1].split(LENGTHS, 1), ids[:, 1:].split(LENGTHS, 1), strict=True
    ):
        logits = model(input_ids=inputs, use_cache=False).logits
        total = total + nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), reduction="sum"
        )
    return total / (2 * LENGTH)


def ours(parts: list[StageModule], ids: torch.Tensor, loss: str) -> torch.Tensor:
    value = ids[:, :-1]
    parts[-1].leaves_head = loss != "plain"
    for part in parts:
        value = part(value, POSITIONS, ENDS, max(LENGTHS))
    last = parts[-1]
    compute = make_loss(loss, last.causal.lm_head, 9, shaping=last.shaping)  # type: ignore[arg-type]
    return compute(value, ids[:, 1:]) / (2 * LENGTH)


def share_tied(parts: list[StageModule]) -> None:
    first, last = parts[0].weights()[parts[0].family.embedding_weight], parts[-1].weights()[HEAD]
    assert first.grad is not None and last.grad is not None  # noqa: PT018
    first.grad += last.grad
    last.grad = first.grad.clone()


@everywhere
# With three there is a first, a middle and a last one.
@pytest.mark.parametrize("count", [1, 2, 3] if runs_all() else [3])
def test_stages_train_and_are_saved_as_transformers_would(
    family: str, count: int, models: Path, tmp_path: Path
) -> None:
    model = whole_model(models / family).train()
    config, parts = stages_of(models / family, count)
    is_tied = config.tie_word_embeddings and count > 1
    named = {name: one for part in parts for name, one in part.weights().items()}
    options: dict[str, Any] = {"lr": 1e-3, "eps": 1e-3}
    both = [torch.optim.AdamW(some, **options) for some in (model.parameters(), named.values())]
    for step in range(STEPS):
        expected = theirs(model, batch(step))
        expected.backward()
        # 9 tokens of 40 at a time: the last chunk is smaller.
        found = ours(parts, batch(step), ("plain", "chunked")[step % 2])
        found.backward()
        assert found.item() == pytest.approx(expected.item(), abs=1e-6)
        if is_tied:
            share_tied(parts)
        for name, one in model.named_parameters():
            torch.testing.assert_close(named[name].grad, one.grad, rtol=1e-4, atol=1e-6)
        for optimizer in both:
            optimizer.step()
            optimizer.zero_grad()
    written = {name: one for name, one in named.items() if not (is_tied and name == HEAD)}
    written = {name: one.detach().contiguous() for name, one in written.items()}
    save_file(written, tmp_path / "model.safetensors")
    published_config(config, torch.float32).save_pretrained(tmp_path)
    with torch.no_grad():
        expected = model(batch(9)).logits
        found = whole_model(tmp_path)(batch(9)).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_dropout_that_is_a_function_is_drawn_as_transformers_draws_it(
    count: int, models: Path, tmp_path: Path
) -> None:
    """Also over stages, which draw one after the other here: no hidden state is dropped twice."""
    shutil.copytree(models / "starcoder2", tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"embedding_dropout": 0.3, "residual_dropout": 0.2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = whole_model(tmp_path).train()
    _, parts = stages_of(tmp_path, count)
    assert all(part.drops for part in parts)
    ids = batch(0)[:, :LENGTH]
    positions, ends = torch.arange(LENGTH).expand(2, -1), torch.tensor([[LENGTH], [LENGTH]])
    torch.manual_seed(1)
    expected = model(input_ids=ids, use_cache=False).logits
    torch.manual_seed(1)
    found = ids
    for part in parts:
        found = part(found, positions, ends.int(), LENGTH)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    with torch.no_grad():
        assert not torch.equal(model(input_ids=ids, use_cache=False).logits, expected)


@everywhere
def test_a_description_has_every_weight(family: str, models: Path) -> None:
    recipe = parse_recipe("", [f"model.path={models / family}"])
    config = model_config(recipe)
    assert config is not None
    for count in (1, 3):
        _, parts = stages_of(models / family, count)
        for part in parts:
            described = parameters(config, len(part.layers), is_first=part.first, is_last=part.last)
            built = (tuple(one.shape) for one in part.weights().values())
            assert Counter(described) == Counter(built)


@everywhere
def test_flops_and_activations_are_close(family: str, models: Path) -> None:
    length = 64
    _, (whole,) = stages_of(models / family, 1, "memory.loss=chunked")
    whole.leaves_head = True
    recipe = parse_recipe(
        "",
        [
            *(f"model.path={models / family}", f"data.sequence_length={length}"),
            *("memory.loss=chunked", "memory.checkpointing=none", "pipeline.microbatches=2"),
            *("train.batch_size=4", "train.device=cpu"),
        ],
    )
    shape = model_shape(whole.causal.config)
    ids, positions = torch.zeros(2, length, dtype=torch.int64), torch.arange(length).expand(2, -1)
    measured = held_bytes(whole, lambda: whole(ids, positions))
    stage = StageShape((), LAYERS, has_first=True, has_last=True, in_flight=1, loss="chunked")
    assert saved_bytes(shape, recipe, stage) == pytest.approx(measured, rel=0.15)
    # torch counts nothing for the fused attention kernel of CPUs.
    _, (whole,) = stages_of(models / family, 1, "model.attention=eager")
    with FlopCounterMode(display=False) as counter:
        whole(ids, positions).sum().backward()
    expected = stage_flops_per_token(shape, length, layers=LAYERS, has_head=True)
    assert counter.get_total_flops() / ids.numel() == pytest.approx(expected, rel=0.01)


def test_older_names_and_files_are_read(models: Path, tmp_path: Path) -> None:
    """As the hub has GPT-2, and Pythia: without the outer name, and with another head's."""
    for family, change in (
        ("gpt2", lambda name: name.removeprefix("transformer.")),
        ("gpt_neox", lambda name: name.replace("lm_head", "embed_out")),
    ):
        _, (whole,) = stages_of(models / family, 1)
        folder = tmp_path / family
        shutil.copytree(models / family, folder)
        weights = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        renamed = {change(name): one for name, one in weights.items()}
        torch.save(renamed, folder / "pytorch_model.bin")
        # What a download left of the other format.
        index = {"weight_map": dict.fromkeys(weights, "model-00001-of-00002.safetensors")}
        (folder / "model.safetensors.index.json").write_bytes(msgspec.json.encode(index))
        _, (read,) = stages_of(folder, 1)
        for name, one in whole.weights().items():
            assert torch.equal(read.weights()[name], one)


def test_a_file_with_more_than_weights_is_refused(models: Path, tmp_path: Path) -> None:
    shutil.copy(models / "olmo2" / "config.json", tmp_path)
    torch.save({"model.norm.weight": Path("x")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(RecipeError, match=wording("holds more than weights")):
        stages_of(tmp_path, 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("pipeline.schedule=zbv", "torch cannot split the backward pass of gpt2"),
        ("data.sequence_length=65", "the model has learned 64 positions"),
    ],
)
def test_what_a_family_cannot_do_is_refused(change: str, said: str, models: Path) -> None:
    recipe = parse_recipe("", [f"model.path={models / 'gpt2'}", change])
    with pytest.raises(RecipeError, match=wording(said)):
        refuse_unfit(recipe, read_config(recipe.model))
    fits = parse_recipe("", [f"model.path={models / 'phi3'}", change])
    refuse_unfit(fits, read_config(fits.model))


def test_every_family_has_a_model_that_is_compared() -> None:
    same_rows(
        families(),
        {*SMALL, *FAMILIES},
        "family '{}' is compared with nothing: add a config to SMALL in tests/train/families.py",
        "'{0}' has a config, and no description: add families/{0}.toml, or remove it",
    )
