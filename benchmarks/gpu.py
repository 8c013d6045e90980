"""One GPU: tokens per second and MFU of the trainer against a bare transformers loop.

    python -m benchmarks.gpu [--model 1b] [--model 8b] [--repeats 3] [--steps 8] [--json FILE]
    python -m benchmarks.gpu --min-mfu 0.5     # fails if the trainer's best MFU is below 50 %
    python -m benchmarks.gpu --cpu --small     # the same code with a tiny model and no GPU

Llama shapes with random weights made on the device, bfloat16, 4096 tokens, AdamW in bfloat16,
65,536 tokens per step: 1B in microbatches of 4, 8B of 1. Neither recomputes activations: 8B needs
about 95 GB; `8b-recomputed` fits into 80 GB. Both sides run eagerly and compiled: the trainer
compiles layers and the loss of a chunk of 4096 tokens, the bare loop the whole model. Runs
alternate, each in its own process; the ratios are those of the medians. "two stages" runs two
stages on the one GPU with interleaved 1F1B, the code that several GPUs run. Model FLOPs follow
PaLM's formula; the peak is the data sheet's, next to that of a measured matrix product.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

REQUIRED_RATIO = 0.97
"""Least speed of the trainer, relative to the bare loop; below it the exit code is 1."""
MODELS = ("1b", "8b", "8b-recomputed")
SIDES = ("bare", "ours", "bare compiled", "ours compiled", "two stages")
PAIRS = {"ours": "bare", "ours compiled": "bare compiled"}
SAME_LOSS = 0.05
"""Largest relative difference of the first losses: weights are random, with the same spread."""
PUBLISHED = """torchtitan publishes for Llama 3.1 8B in bfloat16, FSDP2 on 8 H100s held to 500 W:
5,762 tokens/s per card, with torch.compile 6,667, "33% to 39% MFU". Another card, another
parallelism, selective checkpointing (December 2024, pytorch/torchtitan,
benchmarks/llama3_h100_202412_torchtitan.md)."""
NO_CARD = "gpu: torch finds no CUDA device. Fix: --cpu --small tries the program without one"

Runs = dict[str, list[dict[str, Any]]]
"""Results of the processes of each side."""


def main() -> int:
    arguments = _arguments()
    if arguments.only:
        from benchmarks.gpu_side import run

        device = "cpu" if arguments.cpu else "cuda"
        name, side = arguments.model[0], arguments.only
        print(json.dumps(run(name, side, device=device, steps=arguments.steps)))
        return 0
    import torch

    if not arguments.cpu and not torch.cuda.is_available():
        print(NO_CARD, file=sys.stderr)
        return 2
    names = ["small"] if arguments.small else arguments.model or ["1b", "8b"]
    found = {}
    failed = False
    for name in names:
        runs = _measured(name, arguments)
        failed |= any(not told for told in runs.values())
        found[name] = summary(runs)
        print_summary(name, found[name])
    if any(name.startswith("8b") for name in names):
        print(PUBLISHED)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))
    missed = complaints(found, arguments.min_mfu)
    for line in missed:
        print(f"gpu: {line}", file=sys.stderr)
    return int(failed or bool(missed))


def summary(runs: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Medians of each side and the ratios of the trainer to the bare loop.

    ``mfu`` is the share of ``peak_flops_per_s`` and ``None`` if that is unknown; ``mfu_of_gemm``
    is the share of what matrix products reached in the same processes. Sides without runs, and
    ratios to them, are left out.
    """
    sides = {side: _medians(told) for side, told in runs.items() if told}
    ratios = {
        side: sides[side]["tokens_per_s"] / sides[bare]["tokens_per_s"]
        for side, bare in PAIRS.items()
        if side in sides and bare in sides
    }
    return {"sides": sides, "ratios": ratios}


def _medians(told: list[dict[str, Any]]) -> dict[str, Any]:
    first = told[0]
    rate, gemm = (median(one[key] for one in told) for key in ("tokens_per_s", "gemm_flops_per_s"))
    # Where the data sheet does not tell it, each process measured a peak of its own.
    peaks = [one["peak_flops_per_s"] for one in told if one["peak_flops_per_s"]]
    peak = median(peaks) if peaks else None
    flops = rate * first["flops_per_token"]
    return {
        "tokens_per_s": rate,
        "mfu": flops / peak if peak else None,
        "mfu_of_gemm": flops / gemm,
        "peak_flops_per_s": peak,
        "peak_source": first["peak_source"],
        "gemm_flops_per_s": gemm,
        "memory_bytes": max(one["memory_bytes"] for one in told),
        "runs": told,
    }


def complaints(found: Mapping[str, dict[str, Any]], min_mfu: float | None) -> list[str]:
    """One line for each limit that was missed.

    Args:
        found: model → its :func:`summary`.
        min_mfu: least MFU, from 0 to 1, that the trainer's best side must reach with each model.
    """
    lines = []
    for name, told in found.items():
        for side, ratio in told["ratios"].items():
            if ratio < REQUIRED_RATIO:
                lines.append(f"{name}: {side} is {ratio:.3f} x {PAIRS[side]}, not {REQUIRED_RATIO}")
        if min_mfu is None:
            continue
        mfus = {side: told["sides"][side]["mfu"] for side in PAIRS if side in told["sides"]}
        known = {side: mfu for side, mfu in mfus.items() if mfu is not None}
        if not known:
            lines.append(f"{name}: the trainer's MFU is unknown, not {min_mfu:.1%}")
            continue
        best = max(known, key=lambda side: known[side])
        if known[best] < min_mfu:
            lines.append(f"{name}: {best} reaches an MFU of {known[best]:.1%}, not {min_mfu:.1%}")
    return lines


def print_summary(name: str, told: Mapping[str, Any]) -> None:
    """Print a line for each side and each ratio."""
    for side, one in told["sides"].items():
        mfu = "unknown" if one["mfu"] is None else f"{one['mfu']:.1%}"
        peak = "" if one["peak_flops_per_s"] is None else f"{_tera(one['peak_flops_per_s'])} by "
        print(
            f"{name} {side:13} {one['tokens_per_s']:10,.0f} tokens/s, MFU {mfu} "
            f"({peak}{one['peak_source']}), {one['mfu_of_gemm']:.1%} of measured "
            f"{_tera(one['gemm_flops_per_s'])}, {one['memory_bytes'] / 2**30:.1f} GiB"
        )
    for side, ratio in told["ratios"].items():
        print(f"{name} {side} is {ratio:.3f} x {PAIRS[side]} (limit {REQUIRED_RATIO})", flush=True)


def _tera(flops_per_s: float) -> str:
    return f"{flops_per_s / 1e12:,.3g} TFLOP/s"


def _measured(name: str, arguments: argparse.Namespace) -> Runs:
    """Run the sides in turn; one that fails, for want of memory perhaps, ends without runs."""
    runs: Runs = {side: [] for side in arguments.side or SIDES}
    failed: set[str] = set()
    for _ in range(arguments.repeats):
        for side in [side for side in runs if side not in failed]:
            try:
                runs[side].append(_in_turn(name, side, arguments))
            except subprocess.CalledProcessError as error:
                print(f"gpu: {name} {side} failed:\n{error.stderr[-3000:]}", file=sys.stderr)
                failed.add(side)
                runs[side].clear()
    begins = {side: told[0]["losses"][0] for side, told in runs.items() if told}
    first = next(iter(begins.values()), 0.0)
    for side, loss in begins.items():
        if not abs(loss - first) <= SAME_LOSS * first:
            raise SystemExit(f"gpu: {side} begins with a loss of {loss}, not {first}")
    return runs


def _in_turn(name: str, side: str, arguments: argparse.Namespace) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.gpu", "--only", side, "--model", name]
    words += ["--steps", str(arguments.steps)]
    words += ["--small"] if arguments.small else []
    words += ["--cpu"] if arguments.cpu else []
    # As a launch does. torch 2.9 ignores the newer name.
    allocator = dict.fromkeys(
        ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"), "expandable_segments:True"
    )
    environment = allocator | os.environ
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text}: an MFU is above 0 and at most 1, such as 0.5")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return value


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--model", choices=[*MODELS, "small"], action="append", help="repeatable; default: 1b, 8b"
    )
    parser.add_argument("--side", choices=SIDES, action="append", help="repeatable; default: all")
    parser.add_argument("--repeats", type=_positive, default=3, help="runs of each, alternating")
    parser.add_argument("--steps", type=_positive, default=8, help="after 3 warm-up steps")
    parser.add_argument("--min-mfu", type=_share, metavar="X", help="0.5: fail below 50 %%")
    parser.add_argument("--cpu", action="store_true", help="without a GPU; requires --small")
    parser.add_argument("--small", action="store_true", help="a tiny model, to try the program")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--only", choices=SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cpu and not arguments.small:
        parser.error("--cpu: these models take a card; add --small")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
