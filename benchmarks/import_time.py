"""Start-up: ``import jupyter_mntrain`` ≤ 0.3 s without torch, ``mntrain --help`` ≤ 0.5 s."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

IMPORT = """
import sys, time
begun = time.perf_counter()
import jupyter_mntrain
print(time.perf_counter() - begun)
assert "torch" not in sys.modules
"""
LIMITS_S = {"import": 0.3, "command": 0.5}


def import_s() -> float:
    return float(subprocess.check_output([sys.executable, "-c", IMPORT]))


def command_s() -> float:
    """Seconds of a whole command that contacts no node."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "jupyter_mntrain.cli", "--help"]
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    took = {
        name: [measure() for _ in range(arguments.repeats)]
        for name, measure in (("import", import_s), ("command", command_s))
    }
    for name, limit in LIMITS_S.items():
        print(f"{name}: median {median(took[name]):.3f} s (limit {limit} s)")
    if arguments.json:
        arguments.json.write_text(json.dumps(took) + "\n")
    return 0 if all(median(took[name]) <= limit for name, limit in LIMITS_S.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
