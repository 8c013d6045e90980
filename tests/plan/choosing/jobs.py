"""Jobs to plan: devices, links and small recipes."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.model.records.plan import DeviceSpeed, LinkSpeed, Plan
from jupyter_mntrain.plan.choosing.choose import make_plan
from jupyter_mntrain.plan.choosing.devices import Device, LinkBetween
from jupyter_mntrain.recipe.memory import Config, model_config
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.recipe.stored import resolved

FAST = LinkSpeed(1e12, 0.0, is_measured=True)
ETHERNET = LinkSpeed(200e6 / 8, 1e-4, is_measured=True)


BY_HAND = {
    "pipeline.schedule": "eager-1f1b",
    "pipeline.microbatches": "8",
    "pipeline.split": "even",
    "memory.checkpointing": "none",
}
"""What is fixed if nothing else is said."""


def job(*changes: str, preset: str = "llama-8m") -> tuple[Recipe, Config]:
    text = f'[model]\npreset = "{preset}"\ndtype = "float32"\n[train]\nbatch_size = 32\n'
    recipe = parse_recipe(text, ["data.vocabulary_size=512", *changes])
    config = model_config(recipe)
    assert config is not None
    return recipe, config


def devices(
    speeds: Sequence[float], memory: Sequence[float | None] | None = None, *, per_node: int = 1
) -> list[Device]:
    """Devices of given speeds; measured, and alike in all else."""
    sizes = memory or [None] * len(speeds)
    return [
        Device(
            node=f"node{index // per_node}",
            name="CPU",
            speed=DeviceSpeed(speed, 1e10, "measured", is_measured=True, overhead_s=1e-4),
            memory_bytes=size,
        )
        for index, (speed, size) in enumerate(zip(speeds, sizes, strict=True))
    ]


def planned(
    recipe: Recipe,
    config: Config,
    given: Sequence[Device],
    link: LinkSpeed | LinkBetween = FAST,
    *,
    fixed: Sequence[str] = (),
    order_is_free: bool = False,
    advises: bool = False,
) -> Plan:
    """A plan in which all settings are open but those that the recipe has, and the fixed ones."""
    recipe = resolved(recipe, {name: BY_HAND[name] for name in fixed})
    links = (lambda _sender, _receiver: link) if isinstance(link, LinkSpeed) else link
    return make_plan(
        recipe,
        config,
        given,
        links,
        order_is_free=order_is_free,
        advises=advises,
    )


def gpus_on_a_link(
    bits_per_s: float, flops_per_s: float, count: int, *, batch: int, transfer: str
) -> Plan:
    """A plan of 1B parameters in bfloat16, for GPUs on nodes of their own.

    Args:
        bits_per_s: of every link; 94 % of it is payload.
        flops_per_s: of every GPU; 60 TFLOP/s go with memory of 800 GB/s, more with 1 TB/s.
        batch: sequences of 2,048 tokens.
    """
    recipe, config = job(
        *("model.dtype=bfloat16", "data.sequence_length=2048", "data.vocabulary_size=32000"),
        *(f"train.batch_size={batch}", f"pipeline.transfer={transfer}"),
        preset="llama-1b",
    )
    memory = 800e9 if flops_per_s <= 60e12 else 1e12
    speed = DeviceSpeed(flops_per_s, memory, "measured", is_measured=True, overhead_s=2e-4)
    given = [Device(f"node{rank}", "GPU 0", speed, is_gpu=True) for rank in range(count)]
    link = LinkSpeed(0.94 * bits_per_s / 8, 1e-4, is_measured=True)
    return make_plan(recipe, config, given, lambda _sender, _receiver: link)


def split_of(plan: Plan) -> tuple[int, ...]:
    return tuple(layers for rank in plan.ranks for layers in rank.layers)
