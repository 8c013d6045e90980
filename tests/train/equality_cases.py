"""Cases of the equality tests, and their results. Imports no torch, so collection stays fast."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from jupyter_mntrain.families.presets import FAMILIES
from jupyter_mntrain.recipe.parse import check
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName
from jupyter_mntrain.recipe.sections import (
    AdaptersSection,
    DataParallelSection,
    DataSection,
    MemorySection,
    ModelSection,
    OptimizerSection,
    PipelineSection,
    Recipe,
    TrainSection,
)
from tests.searches import count, runs_all

VOCABULARY = 320
LAYERS = 7
"""Of a model that is read from a directory."""
STEPS, FEW_STEPS = count(2, 4), count(1, 4)
"""The fewer where a way to compute is tried, not what becomes of it."""
PLAIN = MemorySection()
NO_ADAPTERS = AdaptersSection()
ALONE = DataParallelSection()


class Outcome(msgspec.Struct):
    """The worst of all ranks."""

    evaluation_error: float
    """Absolute, worst of several evaluations before and between steps."""
    choice_error: float
    """Logits: of the likeliest next token, less that of the one which was chosen."""
    loss_error: float
    """Absolute, on a loss near ln(320) = 5.8."""
    gradient_error: float
    """Largest difference over the largest value, worst of all parameters."""
    worst: str
    trained_loss_error: float
    """Likewise, after each of several clipped AdamW steps."""
    trained_weight_error: float
    reloaded_error: float
    """Logits of the exported model, as transformers reads it; absolute. 0 of presets."""
    sent_bytes: dict[int, dict[int, int]]
    expected_bytes: dict[int, dict[int, int]]

    def beyond(self) -> dict[str, float]:
        """What differs by more than its limit."""
        found = {name: getattr(self, name) for name in LIMITS}
        return {name: one for name, one in found.items() if not one <= LIMITS[name]}


LIMITS = {
    "evaluation_error": 5e-6,
    "choice_error": 1e-4,
    "loss_error": 1e-6,
    "gradient_error": 1e-5,
    # After clipped AdamW steps, where rounding has had time to grow.
    "trained_loss_error": 1e-5,
    "trained_weight_error": 2e-5,
    "reloaded_error": 4e-5,
}


def cases(world_size: int) -> dict[str, Recipe]:
    """Every schedule on Llama, with one rank's neighbor and with two, with another split and
    accumulation; the other families on some of the schedules, all of which are met. All
    combinations of these, and all schedules on each number of ranks, take minutes on two cores.
    """
    found: dict[str, Recipe] = {}
    schedules = schedules_of(world_size)
    ways = list(itertools.product(schedules, ("even", "uneven"), (1, 2)))
    if not runs_all():
        halves = (("even", 1), ("uneven", 2)) if world_size < 3 else (("even", 2), ("uneven", 1))
        # Three ranks and four have the same kinds of neighbors.
        chosen = schedules if world_size < 3 else schedules[world_size % 2 :: 2]
        ways = [(one, *halves[(n + world_size) % 2]) for n, one in enumerate(chosen)]
    for schedule, split, accumulation in ways:
        tied = (split == "uneven") == (accumulation == 1)
        name = f"{schedule} {split} accumulation={accumulation} {'tied' if tied else 'untied'}"
        found[name] = case("llama", schedule, split, accumulation, world_size, tied=tied)
    if world_size > 1:
        ahead = tuple(range(2 * world_size, world_size, -1))
        found["eager-1f1b ahead"] = case(
            "llama", "eager-1f1b", "uneven", 2, world_size, tied=True, in_flight=ahead
        )
        found["eager-zero-bubble all deferred"] = case(
            *("qwen2", "eager-zero-bubble", "uneven", 2, world_size),
            tied=True,
            in_flight=ahead,
            deferred=(1,) + (2 * world_size,) * (world_size - 1),
        )
    found |= side_by_side_cases(world_size) | adapter_cases(world_size)
    found |= family_cases(world_size) | described_cases(world_size)
    return found | memory_cases(world_size)


def schedules_of(world_size: int) -> tuple[ScheduleName, ...]:
    """Those that differ: one stage alone has nobody to take turns with."""
    return tuple(KINDS) if world_size > 1 else ("1f1b", "gpipe")


def family_cases(world_size: int) -> dict[str, Recipe]:
    """The other families, whole and packed, each on some of the schedules."""
    if world_size == 4:
        return {}
    schedules = schedules_of(world_size)
    ways = list(itertools.product(("mistral", "qwen2", "qwen3"), ("whole", "packed")))
    pairs = itertools.product(ways, schedules)
    if not runs_all():
        # Three ranks take the schedules that two have left: all are met, and so is each family.
        begin, number = {1: (0, 6), 2: (1, 6), 3: (7, 3)}[world_size]
        beside = zip(itertools.cycle(ways), itertools.cycle(schedules), strict=False)
        pairs = itertools.islice(beside, begin, begin + number)
    found = {}
    for (family, kind), schedule in pairs:
        packing, split = ("auto", "uneven") if kind == "whole" else ("best-fit", "even")
        found[f"{family} {schedule} {kind}"] = case(
            *(family, schedule, split, 2 if kind == "whole" else 1, world_size),
            tied=kind == "whole",
            packing=packing,
            steps=FEW_STEPS,
        )
    return found


def described_cases(world_size: int) -> dict[str, Recipe]:
    """Families without presets, read from a directory: one of each mechanism that stages must know
    of: caps, learned positions, rotations by layer, scales. All of them: tests.train.every_family.
    """
    ways: list[tuple[str, Any, Any]] = [
        *(("gemma2", "eager-zero-bubble", "best-fit"), ("gpt2", "1f1b", "best-fit")),
        *(("gemma3_text", "interleaved-1f1b", "auto"), ("granite", "zbv", "best-fit")),
    ]
    return {
        f"{family} {schedule} {packing}": case(
            family, schedule, "even", 1, world_size, tied=None, packing=packing, steps=FEW_STEPS
        )
        for family, schedule, packing in ways
        if world_size == 3
    }


def memory_cases(world_size: int) -> dict[str, Recipe]:
    """What saves memory changes nothing, under a whole and a split backward pass."""
    if world_size > 2:
        return {}
    # On one rank there is no split backward pass.
    split, other = ("zbv", "interleaved-zero-bubble") if world_size > 1 else ("1f1b", "gpipe")
    deferred = "eager-zero-bubble" if world_size > 1 else "1f1b"
    full = MemorySection(checkpointing="full")
    # 32 tokens in parts of 5: the last one is smaller.
    chunked = MemorySection(loss="chunked", chunk_tokens=5)
    both = MemorySection(checkpointing="full", loss="chunked", chunk_tokens=5)
    wanted: list[tuple[str, Any, MemorySection]] = [
        *(("full", schedule, full) for schedule in ("1f1b", split, deferred)),
        *(("chunked", schedule, chunked) for schedule in ("eager-1f1b", split)),
        *(("full chunked", schedule, both) for schedule in (other, "gpipe")),
        *(
            ("selective", schedule, MemorySection(checkpointing="selective"))
            for schedule in ("1f1b", deferred)
        ),
        ("every second", split, MemorySection(checkpointing="full", checkpointing_every=2)),
    ]
    if runs_all():  # it compiles for a minute on each rank
        wanted.append(("compiled", "interleaved-1f1b", MemorySection(compile=True)))
        kept = MemorySection(compile=True, checkpointing="selective")
        wanted.append(("compiled selective", "1f1b", kept))
    return {
        f"{schedule} {what}": case(
            *("llama", schedule, "uneven", 2 if runs_all() else 1 + number % 2, world_size),
            tied=True,
            memory=one,
            steps=FEW_STEPS,
        )
        for number, (what, schedule, one) in enumerate(wanted)
    }


def side_by_side_cases(world_size: int) -> dict[str, Recipe]:
    """Several pipelines, of one rank, and of two."""
    count = 3 if world_size == 3 else 2
    chunked = MemorySection(checkpointing="full", loss="chunked", chunk_tokens=5)
    kinds: dict[str, dict[str, Any]] = {
        "replicas": {"data_parallel": DataParallelSection(replicas=count)},
        "shards": {"data_parallel": DataParallelSection(shards=count)},
        "both": {"data_parallel": DataParallelSection(replicas=2, shards=2)},
    }
    kinds["dropped shards"] = {
        "data_parallel": DataParallelSection(shards=count, reshard_after_forward=True),
        "packing": "best-fit",
        "memory": chunked,
    }
    # The standard on one big node: FSDP2, compiled layers, selective checkpointing.
    kinds["compiled shards"] = {
        "data_parallel": DataParallelSection(shards=count, reshard_after_forward=True),
        "memory": MemorySection(
            compile=True, checkpointing="selective", loss="chunked", chunk_tokens=5
        ),
    }
    kinds["offloaded shards"] = {
        "data_parallel": DataParallelSection(shards=count, reshard_after_forward=True),
        "memory": MemorySection(offload_activations=True),
    }
    kinds["packed replicas"] = kinds["replicas"] | {"packing": "best-fit"}
    kinds["packed shards"] = kinds["shards"] | {"packing": "best-fit", "memory": chunked}
    wanted = {
        2: [
            *(("eager-1f1b", "replicas"), ("1f1b", "packed replicas")),
            *(("eager-1f1b", "shards"), ("1f1b", "packed shards")),
            *(("eager-1f1b", "dropped shards"), ("1f1b", "compiled shards")),
            *(("1f1b", "offloaded shards"),),
        ],
        3: [("1f1b", "replicas"), ("gpipe", "shards"), ("gpipe", "dropped shards")],
        4: [
            *(("eager-1f1b", "replicas"), ("zbv", "packed replicas")),
            *(("eager-zero-bubble", kind) for kind in ("packed replicas", "packed shards")),
            *((schedule, "shards") for schedule in KINDS if schedule == "zbv" or runs_all()),
            ("1f1b", "both"),
        ],
    }
    accumulation = 2 if runs_all() or world_size == 2 else 1
    return {
        f"{schedule} {kind}": case(
            *("llama", schedule, "uneven", accumulation, world_size),
            tied=kind != "packed replicas",
            **kinds[kind],
        )
        for schedule, kind in wanted.get(world_size, [])
    }


def adapter_cases(world_size: int) -> dict[str, Recipe]:
    """Adapters against peft: of all linear layers, and where all cases run under each schedule."""
    low = AdaptersSection(rank=4, alpha=16.0)
    in_4_bits = AdaptersSection(rank=4, alpha=16.0, quantize_base="nf4")
    chunked = MemorySection(loss="chunked", chunk_tokens=5)
    if not runs_all():
        kinds = {1: "1f1b", 2: "eager-zero-bubble"}
        chosen = [kinds[world_size]] if world_size in kinds else []
    else:
        chosen = list(schedules_of(world_size))
    found = {
        f"{schedule} adapters": case(
            *("llama", schedule, "uneven", 1, world_size), tied=True, memory=chunked, adapters=low
        )
        for schedule in chosen
    }
    ends = AdaptersSection(rank=4, alpha=16.0, train_whole=("embedding", "head"))
    for schedule in chosen if runs_all() else chosen[: world_size - 1]:
        found[f"{schedule} adapters alongside whole ends"] = case(
            *("llama", schedule, "uneven", 2, world_size), tied=True, memory=chunked, adapters=ends
        )
    if world_size < 3:
        full = MemorySection(checkpointing="full")
        way, memory = ("1f1b", PLAIN) if world_size == 1 else ("zbv", full)
        found[f"{way} adapters of weights in 4 bits"] = case(
            *("llama", way, "uneven", 1, world_size), tied=True, memory=memory, adapters=in_4_bits
        )
    if not runs_all() or world_size not in {2, 4}:
        return found
    some = AdaptersSection(rank=2, modules=("q_proj", "down_proj"))
    for kind in ("replicas", "shards"):
        parallel = DataParallelSection(**{kind: 2})
        for family in ("mistral", "qwen2", "qwen3"):
            found[f"{family} {kind} adapters"] = case(
                *(family, "eager-1f1b", "uneven", 2, world_size),
                tied=False,
                data_parallel=parallel,
                adapters=some,
            )
    found["replicas adapters alongside whole ends"] = case(
        *("llama", "eager-1f1b", "uneven", 2, world_size),
        tied=True,
        data_parallel=DataParallelSection(replicas=2),
        adapters=ends,
    )
    return found


def for_one_process(recipe: Recipe) -> Recipe:
    """Without what makes no difference to one process: schedule, split, microbatches, ways to save
    memory, and pipelines side by side.
    """
    return msgspec.structs.replace(
        recipe,
        pipeline=PipelineSection(microbatches=1),
        memory=PLAIN,
        data_parallel=ALONE,
        train=msgspec.structs.replace(recipe.train, accumulation=1),
    )


def fewest_layers(ranks: int) -> int:
    """Enough for two stages on every rank, and one more, so that they are uneven."""
    return 2 * ranks + 1


def layers_of(recipe: Recipe) -> int:
    return recipe.model.layers or LAYERS


def uneven(stages: int, layers: int) -> tuple[int, ...]:
    """One each, and the rest in the second stage; but the last one of two has 2."""
    if stages == 2:
        return (layers - 2, 2)
    split = [1] * stages
    split[min(1, stages - 1)] += layers - stages
    return tuple(split)


def case(
    family: str,
    schedule: Any,
    split: str,
    accumulation: int,
    world_size: int,
    *,
    tied: bool | None,
    in_flight: Any = "auto",
    deferred: Any = "auto",
    packing: Any = "auto",
    memory: MemorySection = PLAIN,
    data_parallel: DataParallelSection = ALONE,
    adapters: AdaptersSection = NO_ADAPTERS,
    layers: int | None = None,
    steps: int = STEPS,
) -> Recipe:
    ranks = world_size // data_parallel.width
    stages = 1 if ranks == 1 else ranks * KINDS[schedule].stages_per_rank
    microbatches = 2 * ranks
    layers = (layers or fewest_layers(ranks)) if family in FAMILIES else LAYERS
    model = ModelSection(path=family)
    if family in FAMILIES:
        model = ModelSection(preset=f"{family}-tiny", layers=layers, tie_embeddings=tied)
    recipe = Recipe(
        model=model,
        data=DataSection(sequence_length=16, vocabulary_size=VOCABULARY, packing=packing),
        pipeline=PipelineSection(
            schedule=schedule,
            microbatches=microbatches,
            split="even" if split == "even" else uneven(stages, layers),
            in_flight=in_flight,
            deferred=deferred,
        ),
        adapters=adapters,
        memory=memory,
        # A norm that clips always, so that a wrong global norm shows.
        optimizer=OptimizerSection(learning_rate=1e-2, clip_norm=0.1, warmup_steps=1, epsilon=1e-4),
        train=TrainSection(
            steps=steps,
            batch_size=2 * microbatches * accumulation * data_parallel.width,
            accumulation=accumulation,
        ),
        data_parallel=data_parallel,
    )
    check(recipe, world_size)
    return recipe
