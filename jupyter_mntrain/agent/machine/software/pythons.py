"""Pythons: finds the interpreter that a job asks for on this node, and its environment."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from jupyter_mntrain.agent.machine.software.versions import Installed, read_installed, with_driver
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.plan.spec_check import CONDA, UV
from jupyter_mntrain.telemetry.gpus import Driver

_ROOTS = ("miniforge3", "mambaforge", "miniconda3", "anaconda3", "micromamba", ".conda")
"""Where installers put conda, below the user's home or ``/opt``."""
_KNOWN = Path(".conda", "environments.txt")
"""In the user's home: conda and mamba list there every environment that they make."""
_NAMED = 5

Stamp = tuple[int | None, int | None]

SAFE_PATH_SINCE = 11
"""Python 3.11."""


def find_python(asked: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Find the interpreter that a job asks for.

    Args:
        asked: its path, or that of its environment's folder; ``conda:NAME``, ``conda:PATH`` or
            ``uv:DIR``.
        environment: says where conda has its environments.

    Raises:
        RefusedError: there is none, or it may not be run.
    """
    if asked.startswith(CONDA):
        path = _of_conda(asked, environment)
    elif asked.startswith(UV):
        path = in_home(asked.removeprefix(UV)) / ".venv" / "bin" / "python"
        if not path.exists():
            raise _none(asked, f"{path} does not exist", "make it with uv sync in that folder")
    else:
        path = in_home(asked)
        path = path / "bin" / "python" if path.is_dir() else path
        if not path.exists():
            raise _none(asked, f"{path} does not exist", "install it there, or correct the path")
    if not path.is_file() or not os.access(path, os.X_OK):
        raise _none(asked, f"{path} may not be run by the agent's user", "correct its permissions")
    return path


def python_of(spec: JobSpec, usual: str) -> tuple[str, dict[str, str]]:
    """Return the interpreter of a job's ranks, and its variables. The job's own variables win.

    Raises:
        RefusedError: as for :func:`find_python`.
    """
    if spec.python is None:
        # A program that ranks run by itself calls "python", as in an environment that is active.
        own = activated(Path(usual)) | spec.environment if spec.runs_program else {}
        return usual, own
    python = find_python(spec.python)
    return str(python), activated(python) | spec.environment


def has_safe_path(python: str) -> bool:
    """Return whether an interpreter supports ``-P``, by its file name: starting it is slow."""
    found = re.fullmatch(r"python3\.(\d+)", Path(python).resolve().name)
    return found is None or int(found[1]) >= SAFE_PATH_SINCE


def activated(python: Path) -> dict[str, str]:
    """Return the variables that activating an environment sets. Its programs come first."""
    prefix = python.parent.parent
    found = {"PATH": os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])}
    if (prefix / "pyvenv.cfg").exists():
        found["VIRTUAL_ENV"] = str(prefix)
    if (prefix / "conda-meta").exists():
        found["CONDA_PREFIX"] = str(prefix)
    return found


class PythonReader:
    """Reads what is installed for interpreters, and reads it again only after something was
    installed or the driver was loaded.

    Args:
        driver: gives the GPUs' driver.
    """

    def __init__(self, driver: Callable[[], Driver | None]) -> None:
        self._driver = driver
        self._known: dict[str, tuple[Stamp, Installed]] = {}

    def read(self, python: str) -> Installed:
        """Return what is installed for an interpreter. Blocks, for seconds on a cold disk.

        Raises:
            SpecError: it is not a working interpreter.
        """
        stamp, installed = self._known.get(python, ((None, None), None))
        if (
            installed is not None
            and stamp == _stamp(python, installed)
            and installed.versions == with_driver(installed.versions, self._driver())
        ):
            return installed
        installed = read_installed(python, self._driver())
        self._known[python] = _stamp(python, installed), installed
        return installed


def _stamp(python: str, installed: Installed) -> Stamp:
    # Installing and removing a package changes the folder that has all of them.
    return _changed_ns(Path(python)), _changed_ns(installed.site_packages)


def _changed_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _of_conda(asked: str, environment: Mapping[str, str]) -> Path:
    name = asked.removeprefix(CONDA)
    if name.startswith(("/", "~")):
        path = in_home(name) / "bin" / "python"
        if not path.exists():
            raise _none(asked, f"{path} does not exist", "create it there, or correct the path")
        return path
    known = dict(_conda_environments(environment))
    if name not in known:
        have = f"; there are {', '.join(sorted(known)[:_NAMED])}" if known else ""
        fix = "create it there, or give its path: conda:/PATH"
        raise _none(asked, f"the agent's user has no conda environment {name!r}{have}", fix)
    return known[name] / "bin" / "python"


def _conda_environments(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield conda environments by name. Conda's own list comes last: it wins over others."""
    home = Path(environment.get("HOME") or in_home("~"))
    roots = [base / root for base in (Path("/opt"), home) for root in _ROOTS]
    if prefix := environment.get("MAMBA_ROOT_PREFIX"):
        roots.append(Path(prefix))
    if program := environment.get("CONDA_EXE"):
        roots.append(Path(program).parent.parent)
    folders = [root / "envs" for root in roots]
    folders += map(Path, filter(None, environment.get("CONDA_ENVS_PATH", "").split(os.pathsep)))
    for folder in folders:
        yield from ((path.parent.parent.name, path.parent.parent) for path in _pythons_in(folder))
    for root in roots:
        if (root / "bin" / "python").exists():
            yield "base", root
    for line in _lines(home / _KNOWN):
        if (Path(line) / "bin" / "python").exists():
            is_root = (Path(line) / "condabin").exists()
            yield "base" if is_root else Path(line).name, Path(line)


def _pythons_in(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("*/bin/python"))
    except OSError:
        return []


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text().splitlines() if line.startswith("/")]
    except (OSError, ValueError):
        return []


def _none(asked: str, cause: str, fix: str) -> RefusedError:
    return RefusedError(f"--python {asked}: {cause}", kind=Kind.NO_PYTHON, fix=fix)
