"""Model presets: sizes by family. The tokenizer sets the vocabulary.

Keys are Hugging Face config fields. ``tiny`` is for tests; ``8m`` trains on a laptop's CPU within
minutes, and its two halves have about equal FLOPs.
"""

from __future__ import annotations

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""``model_type`` of those that have presets."""

_FIELDS = (
    *("num_hidden_layers", "hidden_size", "intermediate_size"),
    *("num_attention_heads", "num_key_value_heads"),
)

_SHAPES = {
    "tiny": (4, 64, 176, 4, 2),
    "8m": (8, 256, 704, 8, 8),
    "160m": (12, 1024, 2816, 16, 8),
    "1b": (16, 2048, 8192, 32, 8),
}
"""Values of :data:`_FIELDS`, by size."""

PRESETS: dict[str, dict[str, int | str]] = {
    f"{family}-{size}": {"model_type": family, **dict(zip(_FIELDS, shape, strict=True))}
    for family in FAMILIES
    for size, shape in _SHAPES.items()
}

DEFAULT_PRESET = "llama-8m"
