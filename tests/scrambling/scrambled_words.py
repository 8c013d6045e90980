"""Scrambling: imports the package with every cause, every fix and what joins them made unreadable.

Nothing may decide by a sentence of ours, so nothing but tests of wording may notice. Only the
literal parts of sentences change: names, numbers and what other programs said stay.
"""

from __future__ import annotations

import ast
import codecs
import importlib.abc
import importlib.machinery
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

PACKAGE = "jupyter_mntrain"
VARIABLE = "MNTRAIN_SCRAMBLE_WORDS"
HERE = Path(__file__).parent

NAMES = frozenset(
    {"cause", "fix", "why", "FIX", "FIXES", "REJOIN", "REVOKED", "_AGAIN", "_SAME_ORDER_FIX"}
)
"""Variables and arguments that hold sentences."""

MAKERS = frozenset({"Meaning", "problem", "refusal", "_refuse", "_no_interface"})
"""Functions that take sentences by position, besides errors."""

EDGES = (f"{PACKAGE}.model.failure.problem", f"{PACKAGE}.show.problems")
"""Where problems are put into words."""

_VERSION = str((HERE / "scrambled_words.py").stat().st_mtime_ns)
_COMPILED = Path(tempfile.gettempdir()) / f"mntrain-scrambled-{os.getuid()}" / _VERSION

FOREIGN = f"{PACKAGE}.agent.failure.foreign_messages"


def scrambled(text: str) -> str:
    """The same with other letters; what a format would fill in stays."""
    parts = re.split(r"(\{\w*\})", text)
    return "".join(p if p.startswith("{") else codecs.encode(p, "rot13") for p in parts)


class _Literals(ast.NodeTransformer):
    """Scrambles every literal part of an expression that is a sentence."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str):
            return ast.copy_location(ast.Constant(scrambled(node.value)), node)
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.FormattedValue:
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.Dict:
        node.values = [self.visit(value) for value in node.values]
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        return node


class _Sentences(ast.NodeTransformer):
    """Finds the sentences of a module."""

    def __init__(self, is_edge: bool) -> None:
        self._is_edge = is_edge

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
        if name.endswith("Error") or name in MAKERS:
            node.args = [_Literals().visit(one) for one in node.args]
        for keyword in node.keywords:
            if keyword.arg in NAMES:
                keyword.value = _Literals().visit(keyword.value)
        return node

    def _assigned(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {one.id for t in targets for one in ast.walk(t) if isinstance(one, ast.Name)}
        if names & NAMES and node.value is not None:
            node.value = _Literals().visit(node.value)
        return node

    visit_Assign = visit_AnnAssign = visit_AugAssign = _assigned  # noqa: N815

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Tuple) and any(
            isinstance(one, ast.Attribute) and getattr(one.value, "id", "") == "Kind"
            for one in node.value.elts
        ):
            node.value = _Literals().visit(node.value)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        return _Literals().visit(node) if self._is_edge else node


def _own(path: str) -> str:
    """Never a compiled module of the readable package."""
    return f"{_COMPILED}{path}" if path.endswith(".pyc") else path


class _Loader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data, path, *, _optimization=-1):  # type: ignore[no-untyped-def, override]
        tree = ast.parse(data)
        if self.name != FOREIGN:
            tree = _Sentences(self.name in EDGES).visit(tree)
        return compile(ast.fix_missing_locations(tree), path, "exec", optimize=_optimization)

    def get_data(self, path: str) -> bytes:
        return super().get_data(_own(path))

    def set_data(self, path: str, data: bytes, **options: int) -> None:
        super().set_data(_own(path), data, **options)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != PACKAGE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(name, spec.loader.path)
        return spec


def install() -> None:
    """In this process and every one that it starts."""
    if any(isinstance(one, _Finder) for one in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    os.environ[VARIABLE] = "1"
    paths = os.environ.get("PYTHONPATH", "")
    if str(HERE) not in paths.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [paths])])
