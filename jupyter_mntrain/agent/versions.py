"""Versions that must agree between nodes, read from package metadata: torch is never imported."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

from jupyter_mntrain import __version__
from jupyter_mntrain.model.node import Versions

QUERY_TIMEOUT_S = 20.0
"""Another interpreter has to start once; on a cold disk that takes seconds."""

_QUERY = """
import importlib.metadata as m, json, platform
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
names = [d.metadata["Name"] or "" for d in m.distributions()]
def first(prefix):
    found = sorted(n for n in names if n.lower().startswith(prefix))
    return version(found[0]) if found else None
print(json.dumps({
    "mntrain": version("jupyter-mntrain"), "torch": version("torch"),
    "transformers": version("transformers"), "python": platform.python_version(),
    "nccl": first("nvidia-nccl"), "cuda": first("nvidia-cuda-runtime")}))
"""


def read_versions(python: str, driver: str | None) -> Versions:
    """Versions in the environment of ``python``, the interpreter that ranks run under.

    The CUDA version is that of the runtime torch brought along; ``None`` for a CPU build.
    """
    found = json.loads(
        subprocess.run(
            [python, "-c", _QUERY], capture_output=True, timeout=QUERY_TIMEOUT_S, check=True
        ).stdout
    )
    return Versions(
        mntrain=found["mntrain"] or __version__,
        python=found["python"],
        platform=f"{platform.machine()} {sys.platform}",
        torch=found["torch"],
        transformers=found["transformers"],
        cuda=found["cuda"],
        nccl=found["nccl"],
        driver=driver,
    )
