"""Small models of the families that have no preset, written by transformers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.train.equality_cases import LAYERS, VOCABULARY

_IDS = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_USUAL = _IDS | {
    "num_hidden_layers": LAYERS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
_GEMMA = {"head_dim": 12, "query_pre_attn_scalar": 12, "sliding_window": 5}

SMALL: dict[str, dict[str, Any]] = {
    "gemma2": _GEMMA | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "gemma3_text": _GEMMA | {"final_logit_softcapping": 3.0, "sliding_window_pattern": 3},
    "phi3": {"partial_rotary_factor": 0.5, "sliding_window": 6, "resid_pdrop": 0.0},
    "gpt2": {
        "n_embd": 32,
        "n_layer": LAYERS,
        "n_head": 4,
        "n_positions": 64,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    },
    "gpt_neox": {"rotary_pct": 0.5, "num_key_value_heads": 4},
    "olmo2": {},
    "smollm3": {"no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 5},
    "granite": {
        "embedding_multiplier": 3.0,
        "logits_scaling": 1.7,
        "residual_multiplier": 0.6,
        "attention_multiplier": 0.3,
    },
    "helium": {"head_dim": 8, "attention_bias": True, "mlp_bias": True},
    "starcoder2": {"sliding_window": 5},
}
"""Fields by ``model_type``; what caps, scales and slides does so within a short sequence."""


def small_config(family: str, **fields: Any) -> Any:
    """Of any family, also those that have presets."""
    usual = _IDS if family == "gpt2" else _USUAL
    chosen = usual | {"initializer_range": 0.1} | SMALL.get(family, {}) | fields
    return AutoConfig.for_model(family, **chosen)


def write_model(family: str, directory: Path, **fields: Any) -> Any:
    """A model with weights for which caps, scales and norms matter; returns it."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(small_config(family, **fields))
    with torch.no_grad():
        for one in model.parameters():
            one.add_(torch.randn_like(one), alpha=0.1)
    model.save_pretrained(directory)
    return model


def whole_model(directory: Path) -> Any:
    """As transformers reads it; its fastest attention cannot cap scores."""
    config = AutoConfig.from_pretrained(directory)
    attention = "eager" if getattr(config, "attn_logit_softcapping", None) else "sdpa"
    return AutoModelForCausalLM.from_pretrained(
        directory, attn_implementation=attention, dtype=torch.float32
    )
