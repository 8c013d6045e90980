"""Check 9: MFU of large models by ``benchmarks.gpu``, each side in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tests.gpu.findings import Bench, Item, failed, judged, skipped
from tests.gpu.ranks import ROOT, end

BARE, OURS = "bare compiled", "ours compiled"
LIMIT_S = 150
GOAL = 0.5
"""Of one H200 or H100; other cards have no goal yet."""
HAS_GOAL = re.compile(r"H[12]00(?! NVL| PCIe)", re.IGNORECASE)
LEAST_RATIO = 0.98
NEEDED_GB = {"1b": 45.0, "8b": 100.0}
"""By their estimates, without recomputation."""


def check_speed(bench: Bench) -> Iterator[Item]:
    if not bench.is_real:
        yield skipped("MFU", "needs a GPU")
        return
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory_gb = pynvml.nvmlDeviceGetMemoryInfo(handle).total / 1e9
    name = pynvml.nvmlDeviceGetName(handle)
    for size, needed in NEEDED_GB.items():
        if memory_gb < needed:
            reason = f"takes about {needed:.0f} GB, and the card has {memory_gb:.0f} GB"
            yield skipped(size, reason)
        else:
            yield _measured(bench, size, has_goal=bool(HAS_GOAL.search(name)))


def _measured(bench: Bench, size: str, *, has_goal: bool) -> Item:
    path = bench.directory / f"{size}.json"
    command = [sys.executable, "-m", "benchmarks.gpu", "--model", size, "--repeats", "1"]
    command += ["--steps", "5", "--side", BARE, "--side", OURS]
    process = subprocess.Popen(
        [*command, "--json", str(path)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said = process.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        return failed(size, f"it did not end within {LIMIT_S} s")
    finally:
        end(process)
    if not path.exists():
        lines = said.strip().splitlines()
        return failed(size, lines[-1][:300] if lines else f"it ended with {process.returncode}")
    return judge(size, json.loads(path.read_text())[size], has_goal=has_goal)


def judge(size: str, told: dict[str, Any], *, has_goal: bool) -> Item:
    """Compare a model's figures with the goals.

    Args:
        told: :func:`benchmarks.gpu.summary`.
        has_goal: whether its MFU has one on this card.
    """
    if OURS not in told["ratios"]:
        return failed(size, "a side has no figure: run python -m benchmarks.gpu")
    ours, ratio = told["sides"][OURS], told["ratios"][OURS]
    mfu, problem = ours["mfu"], None
    if has_goal and (mfu or 0.0) < GOAL:
        problem = f"MFU {mfu or 0.0:.1%} is below {GOAL:.0%}"
    elif ratio < LEAST_RATIO:
        problem = f"{ratio:.3f} of a bare compiled loop's speed, below {LEAST_RATIO}"
    return judged(
        size,
        problem,
        tokens_per_s=ours["tokens_per_s"],
        mfu=mfu or "unknown",
        of_bare_compiled=ratio,
    )
