"""Between GPUs of several nodes: what one rank trains, all ranks of a launch train together.

    scripts/gpu-check --nodes A B
    torchrun --nnodes 2 --nproc-per-node 1 … -m tests.gpu.between   # or srun, with RANK and so on

Rank 0 prints the report, and the same as JSON in a line that begins with ``gpu-check-json``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from jupyter_mntrain.model.environment import (
    CHECKPOINT_VARIABLE,
    RESUME_FROM_VARIABLE,
    RESUME_STEP_VARIABLE,
)
from tests.gpu import report
from tests.gpu.checks.stages import alone, cases, judge
from tests.gpu.facts import no_card, read_facts
from tests.gpu.findings import Bench, Finding
from tests.gpu.program import one_line, run_case
from tests.gpu.ranks import Answer, run_cases
from tests.gpu.settings import WITHOUT_TF32

JSON_LINE = "gpu-check-json "
NUMBER, TITLE = 3, "ranks on several nodes: schedules and parallelism"
JOIN_S = 600
"""Rank 0 first trains alone, and the others wait for it."""

OF_RUN = (CHECKPOINT_VARIABLE, RESUME_FROM_VARIABLE, RESUME_STEP_VARIABLE)
"""A launch has all attempts go on from its run's newest checkpoint: a case, from the one before."""


def main() -> int:
    """Train all cases; 0 if all of them held."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.between")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device = parser.parse_args().device
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ.update(WITHOUT_TF32)
    for name in OF_RUN:
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as directory:
        # All ranks must have the same recipe, so its path of the text is the same.
        os.chdir(directory)
        facts = read_facts()
        if device == "cuda" and (why := facts.get("error") or no_card(facts)):
            print(f"gpu-check: {why}. Rank {rank} cannot take part.", file=sys.stderr)
            return 2
        references: dict[str, Answer] = {}
        if rank == 0:
            bench = Bench(device, len(facts["cards"]), Path(directory))
            references = run_cases(bench, alone(bench, ranks), environment=WITHOUT_TF32)
        finding, hosts = _together(Bench(device, 1, Path()), ranks, references, facts)
        code = _tell(finding, hosts) if rank == 0 else 0
    sys.stdout.flush()
    os._exit(code)  # groups of a failed case could block


def _together(
    bench: Bench, ranks: int, references: dict[str, Answer], facts: dict[str, Any]
) -> tuple[Finding, list[str]]:
    """What came of it, and what each rank computes on."""
    import torch
    import torch.distributed as dist

    if bench.is_real:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "cpu:gloo,cuda:nccl" if bench.is_real else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=JOIN_S))
    begun, rank = time.monotonic(), dist.get_rank()
    mine = {"host": os.environ.get("MNTRAIN_NODE") or os.uname().nodename, "facts": facts}
    hosts = _gathered(mine)
    nodes = len({one["host"] for one in hosts})
    answers: dict[str, Answer] = {}
    for case in cases(bench, ranks, nodes):
        result = run_case(case, rank, Path())
        try:
            told = _gathered(result)
        except RuntimeError as error:
            told = [{"error": result.get("error") or one_line(str(error))}]
        error = next((one["error"] for one in told if "error" in one), None)
        answers[case["name"]] = Answer(error, () if error else tuple(told))
        if error:
            break
    for case in cases(bench, ranks, nodes):
        answers.setdefault(case["name"], Answer("not reached, because an earlier one failed"))
    items = tuple(judge(bench, ranks, answers, references, nodes)) if rank == 0 else ()
    told_hosts = [
        f"rank {number} on {one['host']}: {_in_words(one['facts'])}"
        for number, one in enumerate(hosts)
    ]
    return Finding(NUMBER, TITLE, items, time.monotonic() - begun), told_hosts


def _in_words(facts: dict[str, Any]) -> str:
    cards = ", ".join(card["name"] for card in facts["cards"]) or "no card"
    return f"{cards}; torch {facts['torch']}, NCCL {facts['nccl']}, driver {facts['driver']}"


def _gathered(mine: dict[str, Any]) -> list[dict[str, Any]]:
    import torch.distributed as dist

    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return found


def _tell(finding: Finding, hosts: list[str]) -> int:
    title = f"GPU acceptance of jupyter_mntrain between {len(hosts)} ranks: {finding.state}"
    page = "\n".join([title, *hosts, "", *report.finding_lines(finding)])
    print(page)
    print(JSON_LINE + json.dumps({**finding.as_data(), "page": page}), flush=True)
    return int(finding.state == "failed")


if __name__ == "__main__":
    sys.exit(main())
