"""Built-in trainer in one process against a bare loop over the same transformers model.

    python -m benchmarks.one_process [--repeats 5] [--steps 6] [--threads 1] [--json FILE]

Same weights, batches, AdamW, clipping, float32; the losses of both are compared. They run in turn
in one process on the same cores; what is compared are medians of tokens per second.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from jupyter_mntrain.recipe.parse import Recipe, parse_recipe

WARM_UP = 2
"""The first steps allocate memory: not counted."""
REQUIRED_RATIO = 0.97
TOLERANCE = 1e-4
"""Largest relative difference of the losses: both sides do the same work."""

BATCH, LENGTH = 8, 256
MICROBATCHES = (1, 8)
"""The whole batch at once, as in a hand-written loop, and the recipe's default."""
SETTINGS = (
    *("model.preset=llama-8m", f"data.sequence_length={LENGTH}", "data.vocabulary_size=2048"),
    *(f"train.batch_size={BATCH}", "train.device=cpu", "report.to=[]", "output.at_end=false"),
    # Like the bare loop: a constant learning rate, and no weight decay that would skip norms.
    *("optimizer.warmup_steps=0", "optimizer.min_ratio=1.0", "optimizer.weight_decay=0"),
)


def main() -> int:
    arguments = _arguments()
    # Must precede the start of torch's threads.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        os.environ["MNTRAIN_METRICS_DIR"] = directory  # the cost of recording is included
        for microbatches in arguments.microbatches or MICROBATCHES:
            found[microbatches] = _measured(microbatches, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(found))
    return int(any(ratio < REQUIRED_RATIO for ratio in found.values()))


def _measured(microbatches: int, arguments: argparse.Namespace) -> float:
    """The median ratio for this number of microbatches; prints every run."""
    steps = arguments.steps + WARM_UP
    settings = (f"pipeline.microbatches={microbatches}", f"train.steps={steps}")
    recipe = parse_recipe("", [*SETTINGS, *settings])
    bare = Bare(recipe)
    rates: dict[str, list[float]] = {"bare": [], "ours": []}
    for _ in range(arguments.repeats):
        losses = {}
        for name, run in (("bare", bare.run), ("ours", lambda: _ours(recipe))):
            times, losses[name] = run()
            rates[name].append(BATCH * LENGTH / median(times[WARM_UP:]))
        _refuse_other_work(losses["bare"], losses["ours"])
        print(
            f"{microbatches} microbatches: bare {rates['bare'][-1]:,.0f} tokens/s, "
            f"ours {rates['ours'][-1]:,.0f}",
            flush=True,
        )
    ratio = median(rates["ours"]) / median(rates["bare"])
    is_met = ratio >= REQUIRED_RATIO
    print(
        f"{microbatches} microbatches: ratio of medians {ratio:.3f}, "
        f"required {REQUIRED_RATIO}: {'met' if is_met else 'NOT met'}"
    )
    return ratio


def _ours(recipe: Recipe) -> tuple[Sequence[float], Sequence[float]]:
    """Seconds and losses of all steps of the whole trainer."""
    from jupyter_mntrain.train import train

    with contextlib.redirect_stdout(io.StringIO()):
        result = train(recipe)
    return result.step_s, result.losses


class Bare:
    """Seconds and losses of the bare loop, with the weights and batches of the trainer."""

    def __init__(self, recipe: Recipe) -> None:
        from jupyter_mntrain.train.prepare import prepare
        from jupyter_mntrain.train.world import join_world

        with join_world("cpu", 60) as world:
            ready = prepare(recipe, world)
        self._recipe = ready.reports and recipe
        self._config = ready.config
        self._weights = ready.modules[0].weights()
        steps = recipe.steps
        self._batches = [ready.batches.batch(step) for step in range(steps)]
        self._microbatches: int = recipe.microbatches
        self._section = recipe.optimizer

    def run(self) -> tuple[Sequence[float], Sequence[float]]:
        import torch
        from transformers import AutoModelForCausalLM

        from benchmarks.bare import step

        model = AutoModelForCausalLM.from_config(self._config, attn_implementation="sdpa").train()
        model.load_state_dict(self._weights)
        optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=self._section.learning_rate,
            betas=self._section.betas,
            eps=self._section.epsilon,
            weight_decay=0.0,
            fused=True,
        )
        times, losses = [], []
        last = time.perf_counter()
        for batch in self._batches:
            total = step(model, optimizer, batch, self._microbatches, self._section.clip_norm)
            losses.append(total)
            times.append(time.perf_counter() - last)
            last = time.perf_counter()
        return times, losses


def _refuse_other_work(bare: Sequence[float], ours: Sequence[float]) -> None:
    for one, other in zip(bare, ours, strict=True):
        if abs(one - other) > TOLERANCE * one:
            raise SystemExit(f"one_process: not the same work: losses {bare} and {ours}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="runs of each side, alternating")
    parser.add_argument(
        "--steps", type=int, default=6, help=f"per run, after {WARM_UP} warm-up steps"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads and cores of each side")
    parser.add_argument(
        "--microbatches", type=int, action="append", help=f"repeatable; default: {MICROBATCHES}"
    )
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
