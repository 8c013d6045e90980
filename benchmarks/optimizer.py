"""The optimizer's step: many weights in each kernel against one weight at a time.

    python -m benchmarks.optimizer [--layers 8] [--size 1024] [--repeats 5] [--json FILE]

bfloat16 weights of decoder layers, on a GPU if there is one. Both sides run in turn in one process
on the same values; what is compared are medians of milliseconds per step. It claims nothing on a
CPU, whose caches prefer one weight at a time.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

PRECISIONS = ("plain", "float32-master", "stochastic-rounding")
WARM_UP = 3
"""The first steps allocate memory and compile."""


def main() -> int:
    import torch

    arguments = _arguments()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = {}
    for precision in PRECISIONS:
        sides = {name: _Side(precision, name, arguments, device) for name in ("together", "alone")}
        times: dict[str, list[float]] = {name: [] for name in sides}
        for repeat in range(WARM_UP + arguments.repeats):
            for name, side in sides.items():
                seconds = side.step()
                if repeat >= WARM_UP:
                    times[name].append(seconds * 1e3)
        medians = {name: median(some) for name, some in times.items()}
        found[precision] = medians | {"values": sides["together"].values}
        together, alone = medians["together"], medians["alone"]
        print(
            f"{precision:20} {found[precision]['values'] / 1e6:8.0f} M values: together "
            f"{together:8.2f} ms, one at a time {alone:8.2f} ms, {alone / together:.2f} ×"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"device": str(device)} | found))
    return 0


class _Side:
    def __init__(
        self, precision: str, name: str, arguments: argparse.Namespace, device: Any
    ) -> None:
        import torch
        from torch import nn

        from jupyter_mntrain.recipe.parse import parse_recipe
        from jupyter_mntrain.train.optimizer.optimizer import Optimizer

        hidden = arguments.size
        layer = [*[(hidden, hidden)] * 4, *[(4 * hidden, hidden)] * 3, (hidden,), (hidden,)]
        self._weights = {
            f"{place}.weight": nn.Parameter(torch.randn(shape, device=device).bfloat16())
            for place, shape in enumerate(layer * arguments.layers)
        }
        self.values = sum(one.numel() for one in self._weights.values())
        fields = ["model.dtype=bfloat16", f"optimizer.precision={precision}"]
        recipe = parse_recipe("", [*fields, "optimizer.clip_norm=0"])
        parts = [self._weights]
        if name == "alone":
            parts = [{key: one} for key, one in self._weights.items()]
        self._optimizers = [Optimizer(recipe, part, part) for part in parts]
        self._norm = torch.ones((), device=device)

    def step(self) -> float:
        import torch

        for one in self._weights.values():
            one.grad = torch.randn_like(one)
        self._wait()
        begun = time.perf_counter()
        for optimizer in self._optimizers:
            optimizer.update(self._norm)
        self._wait()
        return time.perf_counter() - begun

    def _wait(self) -> None:
        import torch

        if self._norm.is_cuda:
            torch.cuda.synchronize()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--size", type=int, default=1024, help="hidden size")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
