"""Stop: seconds until no process of the job is left. 20 stops, p95 ≤ 3 s; a decoy survives."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.loopback import two_agents, until
from jupyter_mntrain.agent.attempt.processes import environment_of
from jupyter_mntrain.model.environment import JOB_VARIABLE
from jupyter_mntrain.model.records.job import JobSpec

LIMIT_S = 3.0
SCRIPT = """
import time
from jupyter_mntrain import Recorder
with Recorder() as recorder:
    while True:
        time.sleep(0.05)
        recorder.step(tokens=1)
"""


def processes(job_id: str) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if environment_of(pid).get(JOB_VARIABLE) == job_id]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    decoy = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)  # script.py"])
    took = []
    try:
        with two_agents() as (cluster, _):
            for _ in range(arguments.repeats):
                spec = JobSpec(
                    entry=("script.py",),
                    files={"script.py": SCRIPT},
                    participants=cluster.participants(),
                )
                job = cluster.launch(spec)
                until(lambda job=job: _has_stepped(job), "first steps")
                begun = time.monotonic()
                job.stop()
                until(lambda job=job: not processes(job.id), "nothing to be left")
                took.append(time.monotonic() - begun)
                job.wait(30)
                print(f"{took[-1]:.2f} s", flush=True)
        survived = decoy.poll() is None
    finally:
        decoy.kill()
        decoy.wait()
    took.sort()
    p95 = took[max(0, -(-95 * len(took) // 100) - 1)]
    print(f"median {took[len(took) // 2]:.2f} s, p95 {p95:.2f} s (limit {LIMIT_S:.1f} s); "
          f"decoy {'survived' if survived else 'DIED'}")  # fmt: skip
    if arguments.json:
        arguments.json.write_text(json.dumps({"stops_s": took, "p95_s": p95}) + "\n")
    return 0 if p95 <= LIMIT_S and survived else 1


def _has_stepped(job: object) -> bool:
    view = job.view()  # type: ignore[attr-defined]
    return all(rank.step for part in view.parts for rank in part.ranks)


if __name__ == "__main__":
    sys.exit(main())
