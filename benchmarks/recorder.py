"""Flight recorder: what torch's recorder and our hook cost with Gloo, as a ratio of step times.

``python -m benchmarks.recorder``: two ranks on this machine sum 1024 floats, with and without the
recorder in turn, in one run; the fastest of 40 blocks of 100 counts; prints the median of three
ratios.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from jupyter_mntrain.telemetry.startup import STARTUP_DIRECTORY

RANK = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
data = torch.ones(1024)
def block():
    began = time.perf_counter()
    for _ in range(100):
        dist.all_reduce(data)
    return time.perf_counter() - began
spent_s = min(block() for _ in range(40))  # the least: other programs only add to it
if dist.get_rank() == 0:
    print(spent_s, flush=True)
dist.destroy_process_group()
"""


def seconds(*, is_on: bool) -> float:
    """How long 100 calls take."""
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "rank.py"
        script.write_text(RANK)
        variables = {"TORCH_FR_BUFFER_SIZE": "2000" if is_on else "0", "OMP_NUM_THREADS": "1"}
        if is_on:
            variables |= {"MNTRAIN_METRICS_DIR": directory, "PYTHONPATH": str(STARTUP_DIRECTORY)}
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        said = subprocess.run(
            [*command, "--nproc-per-node=2", str(script)],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return float(said)


def main() -> None:
    ratios = []
    for _ in range(3):
        without, with_it = seconds(is_on=False), seconds(is_on=True)
        ratios.append(with_it / without)
        print(f"{1e4 * without:.0f} µs a call, recorded {1e4 * with_it:.0f} µs: {ratios[-1]:.3f}")
    print(f"median ratio: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
