"""Memory forecast, compared with what ranks actually build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from jupyter_mntrain.families.presets import FAMILIES
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import (
    MemoryEstimate,
    forecast,
    gpu_overhead,
    memory_estimate,
    model_config,
)
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train.model.decoder import read_config
from jupyter_mntrain.train.model.stages import build_modules
from tests.recipe.test_memory import SMALL, VOCABULARY, built
from tests.wording import wording

OWN = (*SMALL, f"data.vocabulary_size={VOCABULARY}")


@pytest.mark.parametrize("tied", ["true", "false"])
@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_what_the_rank_itself_says(family: str, tied: str) -> None:
    changes = (f"model.preset={family}-tiny", f"model.tie_embeddings={tied}", OWN[-1])
    recipe, shape, _, stage = built(*changes)
    (found,) = forecast(recipe, model_config(recipe), 1)
    assert found == memory_estimate(shape, recipe, [stage])


@pytest.mark.parametrize("schedule", ["eager-1f1b", "interleaved-1f1b"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_every_rank_has_the_weights_that_it_builds(family: str, schedule: str) -> None:
    changes = (f"model.preset={family}-tiny", "model.layers=4", "model.tie_embeddings=true")
    recipe = parse_recipe("", [*OWN, *changes, f"pipeline.schedule={schedule}"])
    config = read_config(recipe.model, VOCABULARY)
    layout = lay_out(recipe, 2, config.num_hidden_layers)
    for rank, one in enumerate(forecast(recipe, model_config(recipe), 2)):
        modules = build_modules(recipe, config, layout, rank, torch.device("cpu"))
        tensors = [t for module in modules.values() for t in module.weights().values()]
        assert one.weights == sum(tensor.nbytes for tensor in tensors)


@pytest.mark.parametrize(
    ("ranks", "changes", "place", "groups", "neighbors"),
    [
        (1, (), 0, 0, 0),
        (3, (), 0, 1, 1),
        (3, (), 1, 1, 2),
        # torch batches what they exchange in the pipeline's own group.
        (3, ("pipeline.schedule=1f1b",), 1, 1, 0),
        # A tied embedding: its two ranks exchange gradients.
        (3, ("model.tie_embeddings=true",), 0, 1, 2),
        (2, ("data_parallel.replicas=2",), 0, 2, 0),
        (6, ("data_parallel.replicas=2",), 1, 3, 2),
        (12, ("data_parallel.replicas=2", "data_parallel.shards=2"), 2, 4, 1),
    ],
)
def test_nccl_takes_memory_for_each_group_and_neighbor(
    ranks: int, changes: tuple[str, ...], place: int, groups: int, neighbors: int
) -> None:
    width = "pipeline.microbatches=6", "train.batch_size=24"
    recipe = parse_recipe("", [*OWN, *width, "train.device=auto", *changes])
    estimate = MemoryEstimate(weights=1000)
    layout = lay_out(recipe, ranks, 3)
    tied = bool(model_config(recipe).get("tie_word_embeddings"))
    found = gpu_overhead(recipe, layout, place, estimate, is_tied=tied)
    assert found.nccl == (16 * groups + 2 * 2 * neighbors) * 2 * 4 * 2**20
    assert found.total == found.cuda + found.nccl + found.reserve
    assert ("NCCL" in str(found)) == (groups > 0)


def test_a_directory_says_it_if_it_is_here(tmp_path: Path) -> None:
    recipe = parse_recipe("", [*SMALL[1:], f"model.path={tmp_path}"])
    assert model_config(recipe) is None
    preset = model_config(parse_recipe("", OWN))
    (tmp_path / "config.json").write_text(json.dumps(preset))
    assert forecast(recipe, model_config(recipe), 1) == forecast(recipe, preset, 1)
    with pytest.raises(
        RecipeError, match=wording("4 pipeline stages need 4 layers or more; the model has 3")
    ):
        forecast(parse_recipe("", [*OWN, "pipeline.microbatches=4"]), preset, 4)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"model_type": "llama"}', '{"model_type": "t5"}']
)
def test_what_is_no_model_of_ours_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert model_config(parse_recipe("", [f"model.path={tmp_path}"])) is None
