"""Configs of other people's making."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import LlamaConfig

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.train.model.decoder import config_in


def test_a_config_that_breaks_only_in_training_is_refused_before(tmp_path: Path) -> None:
    config = LlamaConfig(hidden_size=16, num_attention_heads=2, vocab_size=32)
    config.eos_token_id = None
    config.save_pretrained(tmp_path)
    assert config_in(tmp_path).vocab_size == 32
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"attention_dropout": 1e6}))
    with pytest.raises(RecipeError, match=r"config\.json.*attention_dropout = 1000000"):
        config_in(tmp_path)
