"""``import jupyter_mntrain`` in fresh interpreters: at most 0.3 s, without torch."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

LIMIT_S = 0.3
CODE = """
import sys, time
begun = time.perf_counter()
import jupyter_mntrain
print(time.perf_counter() - begun)
assert "torch" not in sys.modules
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    took = [
        float(subprocess.run([sys.executable, "-c", CODE], capture_output=True, check=True).stdout)
        for _ in range(arguments.repeats)
    ]
    print(f"median {median(took):.3f} s of {len(took)} (limit {LIMIT_S} s)")
    if arguments.json:
        arguments.json.write_text(json.dumps({"import_s": took}) + "\n")
    return 0 if median(took) <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
