"""Recipes that come with us, by the names people look for. Pure; imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.recipe.memory import MemoryEstimate
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.rank_memory import Config, forecast
from jupyter_mntrain.recipe.sections import Recipe

MODEL_PLACE = "~/models/{size}"
DATA_PLACE = "~/data/chat"

CONFIGS: dict[str, Config] = {
    # Llama 3.2 1B and Llama 2 7B, as their config.json has them.
    "1b": {
        "model_type": "llama",
        "num_hidden_layers": 16,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
        "tie_word_embeddings": True,
    },
    "7b": {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_attention_heads": 32,
        "vocab_size": 32_000,
    },
}


class BuiltIn(Record, frozen=True):
    """A recipe by name.

    Args:
        about: one line, without a full stop.
        gpus: ranks it is made for.
        size: of :data:`CONFIGS`, that its memory is estimated for; ``None``: it fits anywhere.
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
        """Of the rank that will hold most."""
        if self.size is None:
            return None
        ranks = forecast(self.recipe, CONFIGS[self.size], self.gpus)
        return max(ranks, key=lambda one: one.total)


def built_in(name: str) -> BuiltIn | None:
    return next((one for one in BUILT_IN if one.name == name), None)


def _quick_check() -> BuiltIn:
    about = "ten steps of a small model on the Python library, nothing saved: does all of it work"
    text = """\
# Any number of machines, with or without GPUs, no files needed.
[model]
preset = "llama-8m"

[pipeline]
microbatches = 8

[train]
steps = 10
batch_size = 16
log_interval = 1

[checkpoint]
interval_steps = 0
at_end = false

[output]
at_end = false

[report]
to = []
"""
    return BuiltIn("quick-check", about, gpus=2, size=None, text=text)


def _chat(
    size: str,
    gpus: int,
    name: str,
    about: str,
    *,
    schedule: str = "eager-1f1b",
    length: int = 1024,
    dtype: str = "bfloat16",
    packs: bool = False,
    optimizer: Sequence[str] = (),
    memory: Sequence[str] = ('checkpointing = "full"',),
    microbatches: int | None = None,
    batch: int = 32,
    data_parallel: Sequence[str] = (),
) -> BuiltIn:
    count = microbatches if microbatches is not None else 8 * gpus
    by_chance = 'precision = "stochastic-rounding"'
    if not optimizer and dtype == "bfloat16":
        # Adafactor remembers next to nothing: 7B in 24 GB, in two parts.
        optimizer = (by_chance,) if size == "1b" else ('kind = "adafactor"', by_chance)
    rate = "2e-5" if size == "7b" else "4e-5"
    if any("adafactor" in line for line in optimizer):
        rate = "1e-3  # of a weight's size, which is about 0.02"
    lines = [
        "[model]",
        f'path = "{MODEL_PLACE.format(size=size)}"  # a Hugging Face directory, on every node',
        f'dtype = "{dtype}"',
        "",
        "[data]",
        f'source = "{DATA_PLACE}"  # conversations, on every node',
        'format = "chat"',
        f'packing = "{"best-fit" if packs else "none"}"',
        f"sequence_length = {length}",
        "",
        "[pipeline]",
        f'schedule = "{schedule}"',
        f"microbatches = {count}",
        "",
        *(["[data_parallel]", *data_parallel, ""] if data_parallel else []),
        "[optimizer]",
        *optimizer,
        f"learning_rate = {rate}",
        "",
        "[memory]",
        *memory,
        "",
        "[train]",
        "steps = 1000",
        f"batch_size = {batch}",
        "",
        "[evaluation]",
        "interval_steps = 100",
    ]
    return BuiltIn(f"{size}-{name}", about, gpus, size, "\n".join(lines) + "\n")


def _one_gpu(size: str) -> list[BuiltIn]:
    saving = ('checkpointing = "full"', "fused_backward = true")
    tight = ('kind = "adafactor"', 'precision = "stochastic-rounding"', "clip_norm = 0")
    usual = () if size == "1b" else tight
    memory = ('checkpointing = "full"',) if size == "1b" else saving
    count, batch = (8, 16) if size == "1b" else (1, 1)
    return [
        _chat(
            size,
            1,
            "1gpu",
            "one GPU",
            optimizer=usual,
            memory=memory,
            microbatches=count,
            batch=batch,
        ),
        _chat(
            size,
            1,
            "1gpu-packed",
            "one GPU, sequences of 4096 filled with whole conversations",
            optimizer=usual,
            memory=memory,
            microbatches=count,
            batch=count,
            length=4096,
            packs=True,
        ),
    ]


def _pipelines(size: str, gpus: int) -> list[BuiltIn]:
    across = f"{gpus} GPUs"
    return [
        _chat(size, gpus, f"{gpus}gpu-eager", f"{across}, for links between nodes"),
        _chat(size, gpus, f"{gpus}gpu-1f1b", f"{across}, 1F1B", schedule="1f1b"),
        _chat(
            size,
            gpus,
            f"{gpus}gpu-interleaved",
            f"{across} of one node or a fast network, two stages each",
            schedule="interleaved-1f1b",
        ),
        _chat(
            size,
            gpus,
            f"{gpus}gpu-interleaved-packed",
            "the same, sequences of 4096 filled with whole conversations",
            schedule="interleaved-1f1b",
            length=4096,
            packs=True,
            microbatches=4 * gpus,
            batch=4 * gpus,
        ),
        _chat(
            size,
            gpus,
            f"{gpus}gpu-zero-bubble",
            f"{across} of one node or a fast network, least idle time",
            schedule="zbv",
        ),
    ]


BUILT_IN: tuple[BuiltIn, ...] = (
    _quick_check(),
    *_one_gpu("1b"),
    *_pipelines("1b", 2),
    _chat(
        "1b",
        4,
        "4gpu-shards",
        "2 nodes with 2 GPUs each, as two pipelines that split the optimizer",
        data_parallel=("shards = 2",),
        microbatches=8,
    ),
    *_one_gpu("7b"),
    *_pipelines("7b", 2),
    *_pipelines("7b", 4),
    _chat(
        "7b",
        4,
        "4gpu-adamw",
        "4 GPUs, AdamW",
        optimizer=('kind = "adamw"', 'precision = "stochastic-rounding"'),
    ),
    _chat(
        "7b",
        4,
        "4gpu-adamw-4bit",
        "4 GPUs, AdamW that remembers in 4 bits (needs torchao)",
        optimizer=('kind = "adamw-4bit"', 'precision = "stochastic-rounding"'),
    ),
    _chat("7b", 4, "4gpu-float32", "4 GPUs, all of it in float32", dtype="float32"),
)
