"""Configs of other people's making."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from transformers import GPT2Config

from jupyter_mntrain.families.directories import refuse_directory
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import model_config, place_forecast
from jupyter_mntrain.train import parse_recipe
from jupyter_mntrain.train.model.decoder import config_in, read_config
from tests.train.damaged import VALUES
from tests.train.families import small_config
from tests.wording import wording


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("attn_pdrop", 1e6, "attn_pdrop = 1000000"),
        ("n_positions", 0, "n_positions = 0"),
        ("n_inner", -1, "n_inner = -1"),
    ],
)
def test_a_config_that_breaks_only_in_training_is_refused_before(
    field: str, value: Any, shown: str, tmp_path: Path
) -> None:
    config = GPT2Config(n_embd=16, n_head=2, vocab_size=32, eos_token_id=None, bos_token_id=None)
    config.save_pretrained(tmp_path)
    assert config_in(tmp_path).vocab_size == 32
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    with pytest.raises(RecipeError, match=rf"config\.json.*{shown}"):
        config_in(tmp_path)


@pytest.mark.parametrize("content", ["", '{"eos_token_id": 2', "[]", '{"eos_token_id": "</s>"}'])
def test_generation_settings_are_read_before_training(content: str, tmp_path: Path) -> None:
    small_config("llama").save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(content)
    recipe = parse_recipe("", [f'model.path="{tmp_path}"'])
    with pytest.raises(RecipeError, match=wording("cannot read generation_config.json")):
        read_config(recipe.model)


@pytest.mark.parametrize("family", ["gpt2", "gemma3_text", "llama"])
def test_whatever_a_config_says_is_read_or_refused(family: str, tmp_path: Path) -> None:
    small_config(family, vocab_size=32).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    whole = json.loads(file.read_text())
    recipe = parse_recipe("", [f'model.path="{tmp_path}"'])
    for name, value in product(whole, VALUES):
        file.write_text(json.dumps(whole | {name: value}))
        if (known := model_config(recipe)) is not None:
            assert place_forecast(recipe, known, lay_out(recipe, 1, 1), 0).total > 0
        with suppress(RecipeError):
            refuse_directory(tmp_path, "here")
            assert config_in(tmp_path).vocab_size > 0
