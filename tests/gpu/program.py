"""One rank of the GPU acceptance: runs the cases of a plan, each through the product's trainer.

    python -m tests.gpu.program DIRECTORY

``DIRECTORY/plan.json`` has the cases; what came of each is a line of ``rank-N.ndjson`` there.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from jupyter_mntrain.model.environment import (
    METRICS_VARIABLE,
    NODE_VARIABLE,
    RUN_ATTEMPT_VARIABLE,
)
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.metrics import RankStep, sample_decoder


def main(directory: Path) -> int:
    plan = json.loads((directory / "plan.json").read_text())
    rank = int(os.environ["RANK"])
    with (directory / f"rank-{rank}.ndjson").open("w", buffering=1) as file:
        if plan["before"]:
            module, _, function = plan["before"].partition(":")
            getattr(importlib.import_module(module), function)()
        for case in plan["cases"]:
            file.write(json.dumps({"case": case["name"], "begun": True}) + "\n")
            os.environ["MASTER_PORT"] = str(case["port"])
            if "node" in case:
                os.environ[NODE_VARIABLE] = case["node"]
            result = run_case(case, rank, directory)
            file.write(json.dumps({"case": case["name"]} | result) + "\n")
            if "error" in result:
                file.flush()
                # As the trainer does: destroying a group could block on dead peers.
                os._exit(1)
    return 0


def run_case(case: dict[str, Any], rank: int, directory: Path) -> dict[str, Any]:
    """Return a case's result, or ``error`` in one line."""
    begun = time.monotonic()
    try:
        result = KINDS[case.get("kind", "train")](case, rank, directory)
    except MntrainError as error:
        return {"error": one_line(str(error))}
    except Exception as error:  # noqa: BLE001  # whatever it is, it is what the report says
        return {"error": one_line(f"{type(error).__name__}: {error}")}
    return result | {"seconds": time.monotonic() - begun}


def one_line(text: str) -> str:
    return " ".join(text.split())[:400]


def train_case(case: dict[str, Any], rank: int, directory: Path) -> dict[str, Any]:
    """Train by the case's recipe, under its watch."""
    import torch

    from jupyter_mntrain.train import parse_recipe, train
    from tests.gpu.watches import WATCHES

    metrics = Path(tempfile.mkdtemp(dir=directory))
    os.environ[METRICS_VARIABLE] = str(metrics)
    os.environ[RUN_ATTEMPT_VARIABLE] = str(case.get("attempt", 1))
    recipe = parse_recipe("", case["settings"])
    is_cuda = recipe.train.device == "cuda"
    gc.collect()
    if is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with WATCHES[case.get("watch", "none")](case) as seen:
        result = train(recipe)
    return {
        "losses": result.losses,
        "norms": result.gradient_norms,
        "steps": _steps(metrics / f"rank-{rank}.ndjson"),
        "peak_bytes": torch.cuda.max_memory_allocated() if is_cuda else 0,
        **seen,
    }


def _steps(path: Path) -> list[dict[str, Any]]:
    """What the recorder wrote of each step."""
    samples = [sample_decoder.decode(line) for line in path.read_bytes().splitlines()]
    names = ("step_s", "compute_s", "wait_s", "optimizer_s", "sent_bytes")
    return [
        {name: getattr(one, name) for name in names} for one in samples if isinstance(one, RankStep)
    ]


def collective_case(case: dict[str, Any], rank: int, directory: Path) -> dict[str, Any]:
    """An all-reduce of every rank, and a ring of sends."""
    import torch
    import torch.distributed as dist

    from jupyter_mntrain.train.world import join_world

    with join_world(case["device"], case["timeout_s"]) as world:
        total = torch.full((1024,), float(rank + 1), device=world.device)
        dist.all_reduce(total)
        mine = torch.full((1 << 20,), float(rank), device=world.device)
        theirs = torch.empty_like(mine)
        after, before = (rank + 1) % world.size, (rank - 1) % world.size
        exchange = [dist.P2POp(dist.isend, mine, after), dist.P2POp(dist.irecv, theirs, before)]
        for work in dist.batch_isend_irecv(exchange):
            work.wait()
        return {
            "sums": sorted(set(total.tolist())),
            "received": sorted(set(theirs.tolist())),
            "backend": dist.get_backend_config(),
        }


def card_case(case: dict[str, Any], rank: int, directory: Path) -> dict[str, Any]:
    """The card's ids and the speed of its matrix product."""
    import torch

    from jupyter_mntrain.telemetry.device.gemm import device_name, gpu_uuid, measured_gemm
    from jupyter_mntrain.telemetry.device.peaks import known_peak
    from jupyter_mntrain.telemetry.gpus import GpuReader

    device = torch.device("cuda", 0)
    peak = known_peak(device_name(device), "bfloat16")
    return {
        "uuid": gpu_uuid(device),
        "nvml_uuids": [gpu.uuid for gpu in GpuReader().read()],
        "count": torch.cuda.device_count(),
        "gemm": measured_gemm(device, torch.bfloat16, size=8192) if case["measures"] else 0.0,
        "peak": peak.flops_per_s if peak else None,
        "name": device_name(device),
    }


KINDS = {"train": train_case, "collective": collective_case, "card": card_case}

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
