"""Versions: reads those that must agree between nodes from package metadata. Imports no torch."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from jupyter_mntrain import __version__
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.node import Versions
from jupyter_mntrain.model.text.foreign import shown_line

QUERY_TIMEOUT_S = tunables.seconds("agent.versions_timeout_s")

_QUERY = """
import importlib.metadata as m, json, platform, sysconfig
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
    "nccl": first("nvidia-nccl-cu"), "cuda": first("nvidia-cuda-runtime"),
    "site": sysconfig.get_path("purelib")}))
"""

_CUDA_BUILD = re.compile(r"\+cu(\d+)(\d)$")
"""``2.9.0+cu128`` was built for CUDA 12.8."""


class Installed(NamedTuple):
    """What is installed for an interpreter.

    Args:
        has_package: whether it has this package, whose version is otherwise the agent's.
        site_packages: the folder of its packages.
    """

    versions: Versions
    has_package: bool
    site_packages: Path


def read_versions(python: str, driver: str | None) -> Versions:
    """Like :func:`read_installed`, only the versions."""
    return read_installed(python, driver).versions


def read_installed(python: str, driver: str | None) -> Installed:
    """Read what is installed for ``python``, an interpreter that ranks run with.

    The CUDA version is the one that torch was built for, or that of the installed CUDA runtime
    package; ``None`` for a CPU build.

    Raises:
        SpecError: ``python`` is not a working interpreter.
    """
    found = ask_python(python, _QUERY)
    has_package, site_packages = found["mntrain"] is not None, Path(found.pop("site"))
    found["mntrain"] = found["mntrain"] or __version__
    found["cuda"] = cuda_of(found["torch"], found["cuda"])
    versions = Versions(**found, platform=f"{platform.machine()} {sys.platform}", driver=driver)
    return Installed(versions, has_package, site_packages)


def cuda_of(torch: str | None, runtime: str | None) -> str | None:
    """Return the CUDA version in torch's version, else the installed runtime's."""
    build = _CUDA_BUILD.search(torch or "")
    return f"{build[1]}.{build[2]}" if build else runtime


def ask_python(python: str, query: str) -> dict[str, Any]:
    """The JSON object that another interpreter prints.

    Raises:
        SpecError: it is not a working interpreter.
    """
    try:
        answer = subprocess.run(
            [python, "-c", query], capture_output=True, timeout=QUERY_TIMEOUT_S, check=True
        )
        # A startup file of the environment may have printed lines before it.
        return dict(json.loads(answer.stdout.splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise SpecError(
            f"--python {python} does not run: {_reason(error)}",
            kind=Kind.NO_PYTHON,
            fix="give the interpreter that torch is installed for",
        ) from error


def _reason(error: Exception) -> str | None:
    if isinstance(error, OSError):
        return error.strerror
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer within {error.timeout:g} s"
    if isinstance(error, subprocess.CalledProcessError):
        last = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        return shown_line(last[-1]) if last else f"exit code {error.returncode}"
    return "its answer is no versions"
