"""Own imports: finds what a script imports from its own folder, and its Hydra configuration. Only
reads files.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_FROZEN: Final = (
    "abc codecs encodings genericpath importlib io ntpath os posixpath site stat zipimport "
    "_collections_abc _sitebuiltins"
)
LOADED_BEFORE: Final = frozenset({*sys.builtin_module_names, *_FROZEN.split()})
"""Modules that Python has, or has loaded, before it looks into any folder."""


def own_imports(source: str, folder: Path) -> list[str]:
    """Return the names of modules and packages in ``folder`` that the script imports."""
    try:
        names = set(_imported(ast.parse(source)))
    except (SyntaxError, ValueError):
        return []
    return sorted(name for name in names - LOADED_BEFORE if is_module(folder, name))


def config_folder(source: str, folder: Path) -> Path | None:
    """Return the folder that ``@hydra.main(config_path="…")`` names, relative to the script, if
    any.
    """
    try:
        calls = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Call)]
    except (SyntaxError, ValueError):
        return None
    for call in calls:
        if ast.unparse(call.func) not in ("hydra.main", "hydra.initialize"):
            continue
        given = [one.value for one in call.keywords if one.arg == "config_path"] or call.args[:1]
        match given:
            case [ast.Constant(value=str() as name)] if name and not Path(name).is_absolute():
                place = Path(os.path.normpath(folder / name))
                return place if place.is_dir() else None
    return None


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Call):
            yield from _named(node)


def _named(call: ast.Call) -> Iterator[str]:
    """Yield the names that ``import_module("…")`` imports."""
    called = ast.unparse(call.func).rpartition(".")[2]
    match call.args:
        case [ast.Constant(value=str() as name), *_] if called in ("import_module", "__import__"):
            yield from [] if name.startswith(".") else [name.partition(".")[0]]


def is_module(folder: Path, name: str) -> bool:
    """Whether a folder has a module or package of this name."""
    if (folder / f"{name}.py").is_file():
        return True
    package = folder / name
    return package.is_dir() and any(any(package.glob(like)) for like in ("*.py", "*/*.py"))
