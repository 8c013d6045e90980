"""Built-in recipes: the ``.toml`` files in this folder, to run, read and copy. Imports no torch."""

from __future__ import annotations

import re
from pathlib import Path

from jupyter_mntrain.families.presets import PRESETS
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.recipe.memory import Config, MemoryEstimate, forecast
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe

_NAME = re.compile(r"(?P<size>\w+)-(?P<gpus>\d+)gpu(-.+)?")

CONFIGS: dict[str, Config] = {
    # Llama 3.2 1B, Llama 2 7B and Llama 3.1 8B, as in their config.json.
    "1b": {**PRESETS["llama-1b"], "vocab_size": 128_256, "tie_word_embeddings": True},
    "7b": {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_attention_heads": 32,
        "vocab_size": 32_000,
    },
    "8b": {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
    },
}


class BuiltIn(Record, frozen=True):
    """A built-in recipe.

    Args:
        name: of its file.
        about: first line of the file, without the final period.
        gpus: number of ranks it is made for.
        size: key of :data:`CONFIGS` for its memory estimate; ``None`` = it fits anywhere.
        text: content of the file.
    """

    name: str
    about: str
    gpus: int
    size: str | None
    text: str

    @property
    def recipe(self) -> Recipe:
        return parse_recipe(self.text, name=self.name)

    def estimate(self) -> MemoryEstimate | None:
        """Estimate the memory of the rank that needs most; ``None`` if it fits anywhere."""
        if self.size is None:
            return None
        ranks = forecast(self.recipe, CONFIGS[self.size], self.gpus)
        return max(ranks, key=lambda one: one.total)


def built_in(name: str) -> BuiltIn | None:
    return next((one for one in BUILT_IN if one.name == name), None)


def _read(path: Path) -> BuiltIn:
    text = path.read_text(encoding="utf-8")
    about = text.partition("\n")[0].removeprefix("# ").removesuffix(".")
    match = _NAME.fullmatch(path.stem)
    size, gpus = (match["size"], int(match["gpus"])) if match else (None, 2)
    return BuiltIn(path.stem, about, gpus, size, text)


BUILT_IN: tuple[BuiltIn, ...] = tuple(
    sorted(
        map(_read, Path(__file__).parent.glob("*.toml")),
        key=lambda one: (one.size or "", one.gpus, one.name),
    )
)
