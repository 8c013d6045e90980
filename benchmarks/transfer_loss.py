"""What compressed transfers between stages cost in loss, against the same run without.

    python -m benchmarks.transfer_loss [--task scratch] [--transfer int8]... [--seeds 3]
        [--steps 400] [--layers 4] [--hidden 128] [--boundaries 3] [--json FILE]

One process computes a whole Llama; at boundaries between its layers, what a stage would receive
replaces what it would send, by the product's own codec: activations forward, gradients backward.
Every run of a seed has the same weights and batches. Tasks: "scratch" trains bytes of Python's
library from new weights; "full" and "lora" finetune a base of that text on Python's manual, all
weights or adapters of rank 16. Compared is the mean loss of the last 50 steps, over the seeds,
with everything compressed; next to it, the loss on held-out text of the same weights with nothing
compressed, as the trainer evaluates.
The shortest useful run: --seeds 1 --steps 150 --transfer int4.
"""

from __future__ import annotations

import argparse
import json
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pydoc_data import topics
from statistics import fmean
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.transfers import FORMATS, Transfer
from jupyter_mntrain.train.model.decoder import StageModule, read_config
from jupyter_mntrain.train.model.stages import build_modules
from jupyter_mntrain.train.pipeline.transfers import decode, dither_of, encode

TRANSFERS: tuple[Transfer, ...] = ("none", "int8", "int8-int4", "int4")
TASKS = ("scratch", "full", "lora")
LIMITS = {
    ("scratch", "int8"): 1.003,
    ("scratch", "int8-int4"): 1.006,
    ("scratch", "int4"): 1.02,
    ("full", "int4"): 1.01,
    ("lora", "int4"): 1.01,
}
"""Loss over that of the run without, at most."""

BYTES, BATCH, LENGTH, LAST = 256, 8, 128, 50
"""Tokens; sequences of a step; their length; steps whose losses are averaged."""
RATE, FINETUNING_RATE, LORA_RATE, WARM_UP = 1e-3, 3e-4, 2e-3, 20
BASE_STEPS = 600
HELD_OUT, EVALUATED = 0.05, 16
"""Share of the text, and batches of it, to evaluate on."""
WATCHED = 25
"""Every so many steps the signal-to-noise ratio is taken."""


@dataclass
class Run:
    """One training, and what its transfers did."""

    task: str
    transfer: str
    seed: int
    loss: float = 0.0
    held_out: float = 0.0
    snr_db: dict[str, list[float]] = field(default_factory=dict)
    """Mean of each boundary, by direction."""
    seconds: float = 0.0


class Link:
    """The boundaries of a model: replaces tensors by what a receiver decodes.

    Args:
        transfer: of every boundary.
        seed: of the rounding of gradients.

    Attributes:
        step: of the training; decides how gradients are rounded.
        is_on: whether anything is compressed.
    """

    def __init__(self, transfer: Transfer, seed: int) -> None:
        self._transfer = transfer
        self._seed = seed
        self.step = 0
        self.is_on = True
        self._ratios: dict[str, dict[int, list[float]]] = {"forward": {}, "backward": {}}

    def attach(self, module: StageModule, boundaries: int) -> None:
        """Compress at evenly spaced boundaries between the layers."""
        layers = module.present()
        count = len(layers)
        for boundary in range(boundaries):
            place = (boundary + 1) * count // (boundaries + 1) - 1
            layers[place].register_forward_hook(self._hook(boundary))

    def _hook(self, boundary: int) -> Callable[..., torch.Tensor]:
        def cross(_module: nn.Module, _given: object, out: torch.Tensor) -> torch.Tensor:
            crossed: torch.Tensor = _Crossing.apply(out, self, boundary)  # type: ignore[no-untyped-call]
            return crossed

        return cross

    def received(self, sent: torch.Tensor, boundary: int, direction: str) -> torch.Tensor:
        """Encode, decode, and now and then note the signal-to-noise ratio."""
        form = getattr(FORMATS[self._transfer], direction)
        if not self.is_on or form == "none":
            return sent.view_as(sent)
        sent = sent.detach()
        key = (self._seed, self.step, 0, boundary, direction == "backward")
        dither = dither_of(sent.shape, form, key, sent.device)
        found = torch.empty_like(sent, memory_format=torch.contiguous_format)
        decode(encode(sent, form, dither), form, found, dither)
        if self.step % WATCHED == 0:
            signal, noise = sent.square().sum(), (sent - found).square().sum()
            ratio = 10 * (signal / noise.clamp_min(1e-30)).log10().item()
            self._ratios[direction].setdefault(boundary, []).append(ratio)
        return found

    def snr_db(self) -> dict[str, list[float]]:
        """Return the mean signal-to-noise ratio of each boundary, by direction."""
        return {
            direction: [round(fmean(by[one]), 1) for one in sorted(by)]
            for direction, by in self._ratios.items()
        }


class _Crossing(torch.autograd.Function):
    """A boundary: activations forward, gradients backward, each as its receiver decodes it."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, link: Link, boundary: int) -> torch.Tensor:
        ctx.link, ctx.boundary = link, boundary
        return link.received(hidden, boundary, "forward")

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.link.received(gradients[0], ctx.boundary, "backward"), None, None


class Text:
    """Bytes, of which the end is held out."""

    def __init__(self, content: bytes) -> None:
        ids = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        cut = int(len(ids) * (1 - HELD_OUT))
        self.trained, self.held_out = ids[:cut], ids[cut:]

    @staticmethod
    def windows(ids: torch.Tensor, seed: int, step: int) -> torch.Tensor:
        """Return a step's sequences, (BATCH, LENGTH + 1)."""
        drawn = torch.Generator().manual_seed(seed * 1_000_003 + step)
        begins = torch.randint(len(ids) - LENGTH - 1, (BATCH, 1), generator=drawn)
        return ids[begins + torch.arange(LENGTH + 1)].long()


def library() -> Text:
    """Python's library, in the order of its file names."""
    root = Path(sysconfig.get_paths()["stdlib"])
    folders = [root, *(root / one for one in ("asyncio", "email", "http", "json", "logging"))]
    files = sorted(file for folder in folders for file in folder.glob("*.py"))
    return Text(b"".join(file.read_bytes() for file in files))


def manual() -> Text:
    """Python's manual, as pydoc has it."""
    return Text("\n\n".join(topics.topics.values()).encode())


Weights = Mapping[str, torch.Tensor]


def build(arguments: argparse.Namespace, task: str, seed: int, base: Weights | None) -> StageModule:
    """Build the whole model as one stage; new weights, or those of a base."""
    shape = {"layers": arguments.layers, "hidden_size": arguments.hidden}
    heads = max(1, arguments.hidden // 32)
    shape |= {"intermediate_size": arguments.hidden * 11 // 4, "heads": heads}
    lines = [f"model.{name}={value}" for name, value in shape.items()]
    lines += [f"model.key_value_heads={heads}", "model.preset=llama-tiny", "model.dtype=float32"]
    lines += [f"train.seed={seed}", "train.device=cpu", "memory.checkpointing=none"]
    if task == "lora":
        lines.append("adapters.rank=16")
    recipe = parse_recipe("", lines)
    config = read_config(recipe.model, BYTES + 1)
    layout = lay_out(recipe, 1, arguments.layers)
    made = None if base is None else lambda wanted: {name: base[name].clone() for name in wanted}
    return build_modules(recipe, config, layout, 0, torch.device("cpu"), weights=made)[0]


def loss_of(module: StageModule, ids: torch.Tensor) -> torch.Tensor:
    """Return the mean loss per token of sequences (b, T + 1)."""
    places = torch.arange(ids.shape[1] - 1).expand(len(ids), -1)
    logits = module(ids[:, :-1], places)
    return cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def train(module: StageModule, link: Link, text: Text, seed: int, steps: int, rate: float) -> float:
    """Train; the mean loss of the last steps."""
    trained = list(module.trained().values())
    optimizer = torch.optim.AdamW(trained, lr=rate, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    losses = []
    for step in range(steps):
        link.step = step
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / WARM_UP)
        loss = loss_of(module, Text.windows(text.trained, seed, step))
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return fmean(losses[-LAST:])


@torch.no_grad()
def evaluate(module: StageModule, link: Link, text: Text) -> float:
    """Return the loss on held-out text, with nothing compressed."""
    link.is_on = False
    losses = [
        loss_of(module, Text.windows(text.held_out, 0, batch)).item() for batch in range(EVALUATED)
    ]
    link.is_on = True
    return fmean(losses)


def run(
    arguments: argparse.Namespace, task: str, transfer: Transfer, seed: int, base: Weights | None
) -> Run:
    """Train once."""
    begun = time.perf_counter()
    module = build(arguments, task, seed, base)
    link = Link(transfer, seed)
    link.attach(module, arguments.boundaries)
    text = library() if task == "scratch" else manual()
    rate = {"scratch": RATE, "full": FINETUNING_RATE, "lora": LORA_RATE}[task]
    loss = train(module, link, text, seed, arguments.steps, rate)
    held_out = evaluate(module, link, text)
    took = time.perf_counter() - begun
    return Run(task, transfer, seed, loss, held_out, link.snr_db(), took)


def base_of(arguments: argparse.Namespace) -> Weights:
    """Train the base that is finetuned, with nothing compressed."""
    module = build(arguments, "scratch", 1000, None)
    loss = train(module, Link("none", 0), library(), 1000, arguments.base_steps, RATE)
    print(f"base: loss {loss:.4f} after {arguments.base_steps} steps", flush=True)
    return {name: one.detach().clone() for name, one in module.weights().items()}


def _verdict(task: str, runs: Sequence[Run]) -> int:
    """Print a task's table; how many limits it misses."""
    by = {one: [run for run in runs if run.transfer == one] for one in TRANSFERS}
    base = fmean(run.loss for run in by["none"])
    evaluated = fmean(run.held_out for run in by["none"])
    missed = 0
    for transfer, some in by.items():
        if not some:
            continue
        loss, held_out = (
            fmean(getattr(run, name) for run in some) for name in ("loss", "held_out")
        )
        limit = LIMITS.get((task, transfer))
        is_met = limit is None or loss <= limit * base
        missed += not is_met
        shown = "" if limit is None else f" (limit {limit}{'' if is_met else ', NOT met'})"
        print(
            f"{task:8} {transfer:10} loss {loss:.4f}, {loss / base:.4f} x{shown}; "
            f"held out {held_out:.4f}, {held_out / evaluated:.4f} x",
            flush=True,
        )
    return missed


def main() -> int:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    runs: list[Run] = []
    missed = 0
    base = base_of(arguments) if {"full", "lora"} & {*arguments.task} else None
    transfers = dict.fromkeys(("none", *(arguments.transfer or TRANSFERS)))
    for task in arguments.task:
        mine = []
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            for transfer in transfers:
                one = run(arguments, task, transfer, seed, None if task == "scratch" else base)
                mine.append(one)
                print(json.dumps(asdict(one)), flush=True)
        missed += _verdict(task, mine)
        runs += mine
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(one) for one in runs]))
    return int(missed > 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", choices=TASKS, action="append", help="repeatable; default: all")
    parser.add_argument(
        "--transfer", choices=TRANSFERS, action="append", help="repeatable; default: all"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--base-steps", type=int, default=BASE_STEPS)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--boundaries", type=int, help="default: between all layers")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    arguments.task = arguments.task or list(TASKS)
    if arguments.boundaries is None:
        arguments.boundaries = arguments.layers - 1
    return arguments


if __name__ == "__main__":
    sys.exit(main())
