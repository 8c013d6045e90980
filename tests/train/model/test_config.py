"""Configs of other people's making."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import GPT2Config

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.train.model.decoder import config_in


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
