"""Check 9: MFU of large models by ``benchmarks.gpu``, each side in a process of its own.

A side begins only if it can end within the check's time: what matters more comes first.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.gpu import SAME_LOSS, summary
from tests.gpu.findings import Bench, Item, failed, judged, skipped
from tests.gpu.ranks import ROOT, end

BARE, OURS = "bare compiled", "ours compiled"
STEPS = 3
TAKES_S = {("1b", OURS): 60, ("8b", OURS): 75, ("1b", BARE): 75, ("8b", BARE): 150}
"""About, of each side, in the order of their turns: measured on an H200 in November 2026, of which
imports take 15 s, and compiling the bare model of 8B, with nothing in torch's caches, 85 s."""
GOAL = 0.5
"""Of one H200 or H100; other cards have no goal yet."""
HAS_GOAL = re.compile(r"H[12]00(?! NVL| PCIe)", re.IGNORECASE)
LEAST_RATIO = 0.98
NEEDED_GB = {"1b": 45.0, "8b": 100.0}
"""By their estimates, without recomputation."""

Told = dict[str, Any]
"""A side's figures: :func:`benchmarks.gpu_side.run`."""


def check_speed(bench: Bench) -> Iterator[Item]:
    if not bench.is_real:
        yield skipped("MFU", "needs a GPU")
        return
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory_gb = pynvml.nvmlDeviceGetMemoryInfo(handle).total / 1e9
    has_goal = bool(HAS_GOAL.search(pynvml.nvmlDeviceGetName(handle)))
    ours: dict[str, Told] = {}
    for (size, side), takes_s in TAKES_S.items():
        name = size if side == OURS else f"{size} against a bare loop"
        if (needed := NEEDED_GB[size]) > memory_gb:
            reason = f"takes about {needed:.0f} GB, and the card has {memory_gb:.0f} GB"
            yield skipped(name, reason)
        elif side == BARE and size not in ours:
            yield skipped(name, "there is nothing to compare it with")
        elif (left_s := bench.until - time.monotonic()) < takes_s:
            reason = f"takes about {takes_s} s, and {max(0.0, left_s):.0f} s are left"
            yield skipped(name, f"{reason}: run python -m benchmarks.gpu --model {size}")
        elif isinstance(told := _measured(bench, size, side), str):
            yield failed(name, told)
        elif side == OURS:
            ours[size] = told
            yield judge_mfu(size, told, has_goal=has_goal)
        else:
            yield judge_ratio(name, ours[size], told)


def _measured(bench: Bench, size: str, side: str) -> Told | str:
    """A side's figures, or why there are none."""
    path = bench.directory / f"{size}-{side.split(maxsplit=1)[0]}.json"
    command = [sys.executable, "-m", "benchmarks.gpu", "--model", size, "--repeats", "1"]
    command += ["--steps", str(STEPS), "--side", side, "--json", str(path)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said = process.communicate(timeout=bench.until - time.monotonic())[0]
    except subprocess.TimeoutExpired:
        return "it did not end within the time of this check"
    finally:
        end(process)
    sides = json.loads(path.read_text())[size]["sides"] if path.exists() else {}
    if side not in sides:
        lines = said.strip().splitlines()
        return lines[-1][:300] if lines else f"it ended with {process.returncode}"
    told: Told = sides[side]["runs"][0]
    return told


def judge_mfu(size: str, told: Told, *, has_goal: bool) -> Item:
    """Compare a model's MFU with the goal, if it has one on this card."""
    ours = summary({OURS: [told]})["sides"][OURS]
    mfu = ours["mfu"]
    is_low = has_goal and (mfu or 0.0) < GOAL
    return judged(
        size,
        f"MFU {mfu or 0.0:.1%} is below {GOAL:.0%}" if is_low else None,
        tokens_per_s=ours["tokens_per_s"],
        mfu=mfu or "unknown",
    )


def judge_ratio(name: str, ours: Told, bare: Told) -> Item:
    """Compare a model's speed with that of a bare compiled loop, which begins with its loss."""
    ratio = summary({BARE: [bare], OURS: [ours]})["ratios"][OURS]
    first, expected = ours["losses"][0], bare["losses"][0]
    problem = None
    if not abs(first - expected) <= SAME_LOSS * expected:
        problem = f"it begins with a loss of {first:.4g}, and the bare loop with {expected:.4g}"
    elif ratio < LEAST_RATIO:
        problem = f"{ratio:.3f} of its speed, below {LEAST_RATIO}"
    return judged(name, problem, of_bare_compiled=ratio, bare_tokens_per_s=bare["tokens_per_s"])
