"""Own imports: what a script imports from its own folder. Pure but for looking there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def own_imports(source: str, folder: Path) -> list[str]:
    """Names of modules and packages in ``folder`` that the script imports."""
    try:
        names = set(_imported(ast.parse(source)))
    except (SyntaxError, ValueError):
        return []
    return sorted(name for name in names if _is_module(folder, name))


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _is_module(folder: Path, name: str) -> bool:
    if (folder / f"{name}.py").is_file():
        return True
    package = folder / name
    return package.is_dir() and any(any(package.glob(like)) for like in ("*.py", "*/*.py"))
