"""Model presets: shapes by family. The tokenizer sets the vocabulary.

Keys are Hugging Face config fields. ``tiny`` is for tests; ``8m`` trains on a laptop's CPU within
minutes, and its two halves have about equal FLOPs.
"""

from __future__ import annotations

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""``model_type`` of the architectures that tests prove equal to training in one process."""

_SHAPES: dict[str, dict[str, int]] = {
    "tiny": {
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "intermediate_size": 176,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    "8m": {
        "num_hidden_layers": 8,
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
    },
    "160m": {
        "num_hidden_layers": 12,
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
    },
    "1b": {
        "num_hidden_layers": 16,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
}

PRESETS: dict[str, dict[str, int | str]] = {
    f"{family}-{size}": {"model_type": family, **shape}
    for family in FAMILIES
    for size, shape in _SHAPES.items()
}

DEFAULT_PRESET = "llama-8m"
