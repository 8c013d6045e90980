"""Start-up: what a command costs before it does anything, in CPU time, next to ``import httpx``.

``mntrain --version``, ``--help`` and what a shell completes ≤ 0.15 s and at most 0.5 × ``import
httpx``; ``jobs``, ``nodes`` and ``status`` of a cluster of two nodes ≤ 0.5 s; ``import
jupyter_mntrain`` ≤ 0.3 s without torch.
CPU time, as a busy machine makes the clock's any longer; it, too, is up to 1.5 × as much there.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.loopback import ADDRESSES, PORT, two_agents, until
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec
from tests.agent.forking.python import forking_python

BESIDE = ("-c", "import httpx")
IMPORT = ("-c", "import sys, jupyter_mntrain; assert 'torch' not in sys.modules")
COMMAND = ("-m", "jupyter_mntrain.cli")
LIMITS_S = {"import": 0.3, "--version": 0.15, "--help": 0.15, "completion": 0.15}
COMPLETED = "mntrain launch --member n"
ASKED = (
    "-c",
    (
        "import os, sys; os.environ.update(_ARGCOMPLETE='1', COMP_TYPE='9', COMP_POINT=str(len("
        f"{COMPLETED!r})), COMP_LINE={COMPLETED!r}, _ARGCOMPLETE_STDOUT_FILENAME=os.devnull); "
        "sys.argv = ['mntrain']; from jupyter_mntrain.cli import main; main()"
    ),
)
"""What a shell asks."""
OF_CLUSTER_S = {"jobs": 0.5, "nodes": 0.5, "status": 0.5}


def cpu_s(words: Sequence[str]) -> float:
    """CPU seconds of an interpreter with these words."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(repeats: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {name: [] for name in (*LIMITS_S, *OF_CLUSTER_S, "httpx")}
    with two_agents(python=forking_python()) as (cluster, _):
        job = cluster.launch(
            JobSpec(
                entry=("script.py",),
                files={"script.py": "print(1)\n"},
                participants=cluster.participants(),
            )
        )
        until(lambda: job.state in TERMINAL, "the job to end")
        told = ["--cluster", cluster.name]
        for address in ADDRESSES:
            told += ["--agent", f"{address}:{PORT}"]
        commands = {
            "httpx": BESIDE,
            "import": IMPORT,
            "--version": (*COMMAND, "--version"),
            "--help": (*COMMAND, "--help"),
            "completion": ASKED,
            **{name: (*COMMAND, name, *told) for name in OF_CLUSTER_S},
        }
        for words in commands.values():
            cpu_s(words)  # with the page cache warm, and compiled
        for _ in range(repeats):
            for name, words in commands.items():
                took[name].append(cpu_s(words))
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    took = run(arguments.repeats)
    beside_s = median(took["httpx"])
    limits = LIMITS_S | OF_CLUSTER_S
    print(f"import httpx: median {beside_s:.3f} s")
    for name, limit in limits.items():
        found = median(took[name])
        print(f"{name}: median {found:.3f} s (limit {limit} s), {found / beside_s:.2f} × httpx")
    if arguments.json:
        arguments.json.write_text(json.dumps(took) + "\n")
    return 0 if all(median(took[name]) <= limit for name, limit in limits.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
