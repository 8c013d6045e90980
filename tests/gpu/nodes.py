"""Nodes: starts the acceptance between them by the product's own launch, and fetches its report."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.gpu.between import JSON_LINE
from tests.gpu.ranks import ROOT

MNTRAIN = (sys.executable, "-m", "jupyter_mntrain.cli")
NO_REPORT = 2


def launch_between(members: Sequence[str], target: Path, *, device: str = "cuda") -> int:
    """Run :mod:`tests.gpu.between` on nodes of the cluster.

    Args:
        members: as ``launch --member`` takes them.
        target: directory that gets the report.

    Returns:
        0 if all held, 1 if not, 2 if there is no report.
    """
    words = ["launch", "--module", "tests.gpu.between", "--project", str(ROOT)]
    words += [part for member in members for part in ("--member", member)]
    code = subprocess.run([*MNTRAIN, *words, "--wait", "--", "--device", device], check=False)
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "rank-0.log"
        logs = [*MNTRAIN, "logs", "--rank", "0", "--output", str(log)]
        subprocess.run(logs, check=False, stdout=subprocess.DEVNULL)
        lines = log.read_text().splitlines() if log.exists() else []
    told = [line.partition(JSON_LINE)[2] for line in lines if JSON_LINE in line]
    if not told:
        print(f"gpu-check: no report; the launch ended with {code.returncode}", file=sys.stderr)
        return NO_REPORT
    data = json.loads(told[-1])
    text = data.pop("page") + "\n"
    target.mkdir(parents=True, exist_ok=True)
    (target / "gpu-check-nodes.json").write_text(json.dumps(data, indent=1) + "\n")
    (target / "gpu-check-nodes.txt").write_text(text)
    print(f"{text}\nAlso in {target}/gpu-check-nodes.json and gpu-check-nodes.txt")
    return int(data["state"] == "failed")
