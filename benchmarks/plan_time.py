"""Planning: a job of 16 nodes with 8 GPUs each and a model of 80 layers is planned in ≤ 2 s.

Everything is left to the plan. Four jobs: GPUs alike, and every other node's at half speed; eight
pipelines side by side, of 16 ranks each, and two of 64. Nothing runs: the plan is pure code.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from jupyter_mntrain.model.records.plan import DeviceSpeed, LinkSpeed
from jupyter_mntrain.plan.choosing.choose import make_plan
from jupyter_mntrain.plan.choosing.devices import Device
from jupyter_mntrain.recipe.memory import model_config
from jupyter_mntrain.recipe.parse import parse_recipe

LIMIT_S = 2.0
NODES, GPUS = 16, 8
RECIPE = """
[model]
preset = "llama-1b"
dtype = "bfloat16"
layers = 80
hidden_size = 8192
intermediate_size = 28672
heads = 64
key_value_heads = 8

[optimizer]
precision = "plain"

[data]
sequence_length = 4096
vocabulary_size = 128256

[train]
batch_size = 512
"""


def gpus(*, alike: bool) -> Iterator[Device]:
    for node in range(NODES):
        speed = DeviceSpeed(4e14 if alike or node % 2 else 2e14, 2e12, overhead_s=2e-4)
        for gpu in range(GPUS):
            yield Device(f"node{node}", f"GPU {gpu}", speed, memory_bytes=80e9, is_gpu=True)


def plan(width: int, *, alike: bool) -> tuple[float, float, str]:
    """Seconds, CPU seconds, and what was chosen."""
    recipe = parse_recipe(RECIPE, [f"data_parallel.replicas={width}"])
    config = model_config(recipe)
    assert config is not None
    devices = list(gpus(alike=alike))
    link = LinkSpeed(100e9 / 8, 2e-5)
    begun, worked = time.perf_counter(), time.process_time()
    found = make_plan(recipe, config, devices, lambda _sender, _receiver: link)
    took = time.perf_counter() - begun, time.process_time() - worked
    return *took, f"{found.chosen['pipeline.schedule']}, {found.chosen['pipeline.microbatches']}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    took: dict[str, float] = {}
    for width in (8, 2):
        for alike in (True, False):
            runs = [plan(width, alike=alike) for _ in range(arguments.repeats)]
            name = f"{width} pipelines, GPUs {'alike' if alike else 'unlike'}"
            took[name] = median(seconds for seconds, _, _ in runs)
            worked = median(cpu for _, cpu, _ in runs)
            print(f"{name}: {took[name]:.2f} s ({worked:.2f} s of CPU); {runs[0][2]} microbatches")
    if arguments.json:
        arguments.json.write_text(json.dumps(took) + "\n")
    return 0 if max(took.values()) <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
