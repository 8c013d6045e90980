"""Versions: reads those that must match between nodes from package metadata. Imports no torch."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from jupyter_mntrain import __version__
from jupyter_mntrain.launch.toolchain import PACKAGES, find_tools
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from jupyter_mntrain.model.records.node import GpuPlatform, Versions
from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.telemetry.gpus import Driver

QUERY_TIMEOUT_S = 20.0
"""Timeout for reading versions from another interpreter: on a cold disk it starts slowly."""

_QUERY = """
import importlib.metadata as m, importlib.util, json, os, platform, runpy, sys, sysconfig
sys.path = [one for one in sys.path if one]  # without the folder that the agent is in
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
names = [d.metadata["Name"] or "" for d in m.distributions()]
def first(prefix):
    found = sorted(n for n in names if n.lower().startswith(prefix))
    return version(found[0]) if found else None
def built():
    try:
        folder = os.path.dirname(importlib.util.find_spec("torch").origin)
        told = runpy.run_path(os.path.join(folder, "version.py"))
        return {name: told.get(name) for name in ("cuda", "hip", "xpu")}
    except Exception: return None
def compresses():
    try:
        folder = os.path.dirname(importlib.util.find_spec("jupyter_mntrain").origin)
        return os.path.exists(os.path.join(folder, "recipe", "transfers.py"))
    except Exception: return False
print(json.dumps({
    "mntrain": version("jupyter-mntrain"), "torch": version("torch"),
    "transformers": version("transformers"), "python": platform.python_version(),
    "nccl": first("nvidia-nccl-cu"), "cuda": first("nvidia-cuda-runtime"),
    "site": sysconfig.get_path("purelib"), "include": sysconfig.get_path("include"),
    "packages": {n: version(n) for n in PACKAGES if version(n)}, "built": built(),
    "compresses": compresses()}))
""".replace("PACKAGES", repr(PACKAGES))

_BUILDS: dict[str, GpuPlatform] = {"cuda": "CUDA", "hip": "ROCm", "xpu": "XPU"}
"""Variables of torch's ``version.py``. A build of it may have no suffix in its version."""

_CUDA_BUILD = re.compile(r"\+cu(\d+)(\d)$")
"""``2.9.0+cu128`` was built for CUDA 12.8."""


class Installed(NamedTuple):
    """What is installed for an interpreter.

    Args:
        has_package: whether it has this package, whose version is otherwise the agent's.
        site_packages: the folder of its packages.
        include: that of its C headers.
        packages: versions of :data:`PACKAGES`, of those installed.
    """

    versions: Versions
    has_package: bool
    site_packages: Path
    include: str = ""
    packages: Mapping[str, str] = MappingProxyType({})

    def with_tools(self, environment: Mapping[str, str] = os.environ) -> Versions:
        """Return the versions with the current compilers: one may have been installed since.

        Args:
            environment: of the agent, and so of its jobs.
        """
        tools = find_tools(self.packages, self.include, environment)
        return msgspec.structs.replace(self.versions, tools=tools)


def read_installed(python: str, driver: Driver | None) -> Installed:
    """Read what is installed for ``python``, an interpreter of ranks.

    The CUDA version is the one that torch was built for, as its ``version.py`` says; where that
    cannot be read, that in its version's suffix, or that of the installed CUDA runtime package.
    ``None`` for a CPU build.

    Raises:
        SpecError: ``python`` is not a working interpreter.
    """
    found = ask_python(python, _QUERY)
    has_package, site_packages = found["mntrain"] is not None, Path(found.pop("site"))
    found["mntrain"] = found["mntrain"] or __version__
    found["compresses"] = found["compresses"] or not has_package
    built, include = found.pop("built"), str(found.pop("include"))
    packages = dict(found.pop("packages"))
    if found["torch"] is None or built is None:
        found["cuda"] = cuda_of(found["torch"], found["cuda"])
        built_for = platform_of(found["torch"])
    else:
        found["cuda"] = built["cuda"]
        built_for = next((_BUILDS[name] for name in _BUILDS if built[name]), None)
    versions = with_driver(
        Versions(**found, platform=f"{platform.machine()} {sys.platform}", built_for=built_for),
        driver,
    )
    return Installed(versions, has_package, site_packages, include, packages)


def as_loaded(versions: Versions, loaded: LoadedSoftware | None) -> Versions:
    """Return the versions with the NCCL that ranks actually load, if it is known: LD_LIBRARY_PATH
    and LD_PRELOAD may select another than the installed package.
    """
    if loaded is None or loaded.error:
        return versions
    return msgspec.structs.replace(versions, nccl=loaded.nccl)


def with_driver(versions: Versions, driver: Driver | None) -> Versions:
    """Return the versions with that of the GPU driver."""
    return msgspec.structs.replace(
        versions,
        driver=driver.version if driver else None,
        driver_cuda=driver.cuda if driver else None,
    )


def platform_of(torch: str | None) -> GpuPlatform | None:
    """Return the GPU vendor that torch was built for, judged by its version."""
    build = (torch or "").partition("+")[2]
    told: dict[str, GpuPlatform] = {"cu1": "CUDA", "rocm": "ROCm", "xpu": "XPU"}
    return next((told[prefix] for prefix in told if build.startswith(prefix)), None)


def cuda_of(torch: str | None, runtime: str | None) -> str | None:
    """Return the CUDA version in torch's version, else that of the installed runtime."""
    build = _CUDA_BUILD.search(torch or "")
    return f"{build[1]}.{build[2]}" if build else runtime


def ask_python(
    python: str, query: str, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run another interpreter, and return the JSON object that it prints.

    Args:
        environment: default: the agent's own.

    Raises:
        SpecError: it is not a working interpreter.
    """
    try:
        answer = subprocess.run(
            [python, "-c", query],
            capture_output=True,
            timeout=QUERY_TIMEOUT_S,
            check=True,
            env=environment,
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
    return "its answer contains no versions"
