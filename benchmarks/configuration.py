"""Configuration: a job on simulated hosts, its recipe, and the plan that predicts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.simulated_job import LOOPBACK_MBIT, Pair
from jupyter_mntrain.model.records.plan import DeviceSpeed, LinkSpeed, Plan
from jupyter_mntrain.plan.choosing.choose import make_plan
from jupyter_mntrain.plan.choosing.devices import Device
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import model_config
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.schedules import ScheduleName
from jupyter_mntrain.recipe.sections import Recipe

STEPS, WARM_UP = 8, 3

INSTANT = 1e18
"""FLOPs per second of a stage whose seconds are set."""

RECIPE = """
[model]
preset = "llama-tiny"
layers = {layers}
hidden_size = {hidden}
intermediate_size = {intermediate}
heads = {heads}
key_value_heads = {heads}
dtype = "float32"
[data]
sequence_length = {length}
vocabulary_size = {vocabulary}
[pipeline]
schedule = "{schedule}"
microbatches = {microbatches}
split = {split}
{chosen}
[train]
steps = {steps}
batch_size = {batch}
[memory]
checkpointing = "none"
[report]
to = []
"""
TINY = {"hidden": 64, "intermediate": 64, "heads": 1, "length": 128, "vocabulary": 260}
REAL: dict[str, int] = {
    "hidden": 256,
    "intermediate": 704,
    "heads": 4,
    "length": 256,
    "vocabulary": 512,
}


@dataclass(frozen=True)
class Configuration:
    """What is run.

    Args:
        split: layers of each stage.
        sequences: of a microbatch.
        sending_mbit: of each host.
        layer_s: seconds of a layer's forward pass on each rank; empty: it really computes.
        cores: share of a core of each rank that really computes; ``None``: all of it.
    """

    number: int
    schedule: ScheduleName
    microbatches: int
    split: tuple[int, ...]
    sequences: int
    sending_mbit: tuple[int, ...]
    layer_s: tuple[float, ...] = ()
    cores: tuple[float | None, ...] = ()

    @property
    def ranks(self) -> int:
        return len(self.sending_mbit)

    def recipe_text(self, chosen: Mapping[str, str] | None = None) -> str:
        """Args: chosen: what a plan has chosen of the pipeline."""
        lines = [f"{name.split('.')[1]} = {value}" for name, value in (chosen or {}).items()]
        size = TINY if self.layer_s else REAL
        return RECIPE.format(
            **size,
            layers=sum(self.split),
            schedule=self.schedule,
            microbatches=self.microbatches,
            split=list(self.split),
            chosen="\n".join(lines),
            steps=STEPS,
            batch=self.microbatches * self.sequences,
        )

    def recipe(self, *changes: str) -> Recipe:
        return parse_recipe(self.recipe_text(), changes)

    def module(self) -> list[str]:
        """The trainer's module, and its words before the recipe."""
        if not self.layer_s:
            return ["jupyter_mntrain.train"]
        layout = lay_out(self.recipe(), self.ranks, sum(self.split))
        seconds = [
            str(self.layer_s[layout.rank_of(stage)])
            for stage, layers in enumerate(self.split)
            for _ in range(layers)
        ]
        return ["benchmarks.paced", ",".join(seconds)]

    def paced_speeds(self) -> list[DeviceSpeed]:
        """Of ranks whose stages take a set time."""
        return [DeviceSpeed(INSTANT, overhead_s=each, is_measured=True) for each in self.layer_s]

    def __str__(self) -> str:
        links = "/".join("lo" if one == LOOPBACK_MBIT else str(one) for one in self.sending_mbit)
        what = "/".join(f"{1e3 * one:.0f}" for one in self.layer_s) + " ms"
        if self.cores:
            what = "cores " + "/".join("1" if one is None else f"{one:g}" for one in self.cores)
        split = "-".join(map(str, self.split))
        shown = f"{self.schedule:23} {self.microbatches:2} x {self.sequences}"
        return f"{shown} {split:15} {links:17} {what}"


def planned(recipe: Recipe, speeds: Sequence[DeviceSpeed], links: Mapping[Pair, LinkSpeed]) -> Plan:
    """The plan of a recipe on one rank per host; it chooses what the recipe leaves open."""
    config = model_config(recipe)
    assert config is not None
    devices = [Device(f"node{rank + 1}", "CPU", speed) for rank, speed in enumerate(speeds)]
    return make_plan(recipe, config, devices, lambda *pair: links[pair])
