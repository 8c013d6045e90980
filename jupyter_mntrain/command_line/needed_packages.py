"""Needed packages: reports in one line, at a program's start, a package that is too old or shadows
another.

Imports nothing but Python's own library: whatever else it imported could be the one.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "jupyter-mntrain"
PACKAGE: Final = "jupyter_mntrain"
_PATHS: Final = "PYTHONPATH"
_NEEDS: Final = re.compile(r"([A-Za-z0-9._-]+)(?:\[.*?\])?>=([0-9.]+)")
BAD_INPUT: Final = 2
INTERRUPTED: Final = 130
"""Exit codes; 128 + SIGINT is that of a program that Ctrl-C ended."""
_OF_OTHER_VERSIONS: Final = (ImportError, AttributeError, TypeError)


@contextmanager
def needed_packages(program: str) -> Iterator[None]:
    """Wrap a program's imports: if a package is at fault, exit with one line that says so.

    Args:
        program: its name, for that line.
    """
    try:
        yield
    except Exception as error:  # whatever a package of another version ends in
        told = blamed_package(error)
        if told is None:
            raise
        say_blamed(program, told)
        raise SystemExit(BAD_INPUT) from None


def say_blamed(program: str, told: tuple[str, str]) -> None:
    """Print a cause and a fix the way other errors are printed."""
    cause, fix = told
    if "--json" in sys.argv:
        line = json.dumps({"kind": "other-packages", "cause": cause, "fix": fix}, indent=2)
    else:
        line = f"{program}: {line_of(told)}"
    sys.stderr.write(f"{line}\n")


def line_of(told: tuple[str, str]) -> str:
    """Return a cause and a fix as one line."""
    cause, fix = told
    return f"{cause}. Fix: {fix}."


def blamed_package(error: BaseException) -> tuple[str, str] | None:
    """Return cause and fix if an unexpected error comes from a wrong version of a package."""
    modules = list(_modules(error))
    for module in modules:
        file = Path(getattr(sys.modules.get(module), "__file__", None) or "/")
        if any(file.is_relative_to(one) for one in _own_roots()):
            continue  # also where the environment lies in the current folder
        for root in _foreign_roots():
            if file.is_relative_to(root):
                return _in_the_way(module, root, error)
    needs = _needs()
    for module in modules:
        wanted, found = needs.get(module, ""), _version(module)
        if found and _numbers(found) < _numbers(wanted):
            name = f"'{module}>={wanted}'"
            cause = f"{module} {found} is installed, and mntrain needs {wanted} or newer"
            return cause, f"install it in that environment: {sys.executable} -m pip install {name}"
    return None


def _modules(error: BaseException) -> Iterator[str]:
    """Yield names of packages that may have caused an error, the likeliest first."""
    needs, at = _needs(), error
    while True:
        about = getattr(at, "obj", None)  # of an AttributeError: its ``name`` is the attribute's
        name = getattr(at if about is None else about, "name" if about is None else "__name__", "")
        if isinstance(name, str):
            yield _top(name)
        if isinstance(at, _OF_OTHER_VERSIONS):
            frames = reversed([*traceback.walk_tb(at.__traceback__)])
            names = (_top(str(frame.f_globals.get("__name__", ""))) for frame, _ in frames)
            yield from (one for one in names if one in needs)
        before = at.__cause__ or at.__context__
        if before is None:
            return
        at = before


def _top(name: str) -> str:
    top = name.partition(".")[0]
    return "" if top in {PACKAGE, "__main__"} else top


def _own_roots() -> list[Path]:
    named = {Path(one) for one in os.environ.get(_PATHS, "").split(os.pathsep)}
    own = (Path(one) for one in sys.path if one.endswith(("site-packages", "dist-packages")))
    return [Path(os.__file__).parent, *(one for one in own if one not in named)]


def _foreign_roots() -> list[Path]:
    """Return the folders that are searched for modules before this environment's own."""
    named = os.environ.get(_PATHS, "").split(os.pathsep)
    return [Path(one) for one in (*named, *sys.path[:1]) if one]


def _in_the_way(module: str, root: Path, error: BaseException) -> tuple[str, str]:
    from importlib import metadata  # 1 MB, which an agent at rest does without

    wanted = _needs().get(module)
    there = metadata.distributions(name=module, path=[str(root)])
    version = next((f" {one.version}" for one in there), "")
    needed = f" of {wanted} or newer, which mntrain needs" if wanted else ""
    lines = str(error).splitlines()
    why = lines[0] if lines else type(error).__name__
    cause = f"{module}{version} in {root} hides the one{needed}: {why}"
    named = str(root) in os.environ.get(_PATHS, "").split(os.pathsep)
    if named:
        return cause, f"remove {root} from {_PATHS}, or upgrade it there"
    return cause, f"rename it, or run this in a folder other than {root}"


def _needs() -> dict[str, str]:
    """Return the oldest version of each package that mntrain itself requires, by module name."""
    from importlib import metadata

    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    found = (_NEEDS.match(one) for one in required)
    return {one[1].replace("-", "_"): one[2].rstrip(".") for one in found if one}


def _version(module: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(module)
    except (metadata.PackageNotFoundError, ValueError):
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"\d+", version)[:3])
