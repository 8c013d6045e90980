"""Facts: this node's card and software, read in a process of its own.

    python -m tests.gpu.facts

prints them as JSON, so that whoever asks holds no memory of the GPU.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib.metadata import version
from typing import Any

from tests.gpu.ranks import ROOT

LIMIT_S = 120


def read_facts() -> dict[str, Any]:
    """Return the facts; ``error`` if torch cannot even be asked."""
    command = [sys.executable, "-m", "tests.gpu.facts"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"torch does not answer within {LIMIT_S} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else f"it ended with {done.returncode}"}
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def own_facts() -> dict[str, Any]:
    """The facts, read in this process."""
    import jupyter_mntrain
    from jupyter_mntrain.telemetry.gpus import GpuReader

    reader = GpuReader()
    gpus = reader.read()  # before torch, which loads NVML's module where there is no driver
    import torch

    has_cuda = torch.cuda.is_available()
    nccl = torch.cuda.nccl.version() if has_cuda else ()
    return {
        "mntrain": jupyter_mntrain.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "nccl": ".".join(map(str, nccl)) or None,
        "transformers": version("transformers"),
        "driver": reader.driver.version if reader.driver else None,
        "driver_note": reader.note,
        "others": sorted({p.pid for gpu in gpus for p in gpu.processes}),
        "cards": [_card(torch, index) for index in range(torch.cuda.device_count() * has_cuda)],
    }


def _card(torch: Any, index: int) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(index)
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
        "uuid": f"GPU-{properties.uuid}",
    }


def no_card(facts: dict[str, Any]) -> str:
    """Why no check can run, in one line; empty if there is a card."""
    if facts.get("rocm"):
        return f"torch {facts['torch']} is built for AMD GPUs (ROCm), which are not offered"
    if facts["cards"]:
        return ""
    why = facts["driver_note"] or f"the driver is {facts['driver']}"
    return f"torch {facts['torch']} finds no CUDA device ({why})"


if __name__ == "__main__":
    print(json.dumps(own_facts()))
