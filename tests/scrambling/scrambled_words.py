"""Scrambling: imports the package with every cause and fix made unreadable.

Nothing may decide by a sentence of ours, so nothing but tests of wording may notice. Only the
literal parts of sentences change: names, numbers and what other programs said stay.
"""

from __future__ import annotations

import ast
import codecs
import importlib.abc
import importlib.machinery
import json
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "jupyter_mntrain"
VARIABLE = "MNTRAIN_SCRAMBLE_WORDS"
SEEN = "MNTRAIN_SCRAMBLE_SEEN"
"""Path of the file in which all processes note the sentences of their problems."""

HERE = Path(__file__).parent

VOCABULARY = tomllib.loads((HERE / "vocabulary.toml").read_text())
NAMES = frozenset(VOCABULARY["names"])
MAKERS = frozenset(VOCABULARY["makers"])
NAMERS = frozenset(VOCABULARY["namers"])

PROBLEM = f"{PACKAGE}.model.failure.problem"
EDGES = (PROBLEM, f"{PACKAGE}.show.problems")
"""Where problems are put into words."""

SPOKEN = tuple(f"{PACKAGE}.{one}" for one in VOCABULARY["spoken"])

_VERSION = str(max(one.stat().st_mtime_ns for one in HERE.iterdir() if one.is_file()))
_COMPILED = Path(tempfile.gettempdir()) / f"mntrain-scrambled-{os.getuid()}" / _VERSION

FOREIGN = f"{PACKAGE}.agent.failure.foreign_messages"

ANYTHING = re.compile("")
SEVERAL_WORDS = re.compile(r"\A(?!.*\n.*\n).*[a-zA-Z]{2,}[,:;]? [a-zA-Z]{2,}", re.DOTALL)


def scrambled(text: str) -> str:
    """The same with other letters; what a format would fill in stays."""
    parts = re.split(r"(\{\w*\})", text)
    return "".join(p if p.startswith("{") else codecs.encode(p, "rot13") for p in parts)


class Scrambled(ast.Constant):
    """A literal that was readable."""


class _Literals(ast.NodeTransformer):
    """Scrambles every literal part of an expression that is a sentence.

    Args:
        is_certain: otherwise only what has several words in one line: the expression may be
            something else, like a program.
    """

    def __init__(self, *, is_certain: bool = True) -> None:
        self._pattern = ANYTHING if is_certain else SEVERAL_WORDS

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        """Constants side by side are data."""
        is_data = all(isinstance(one, ast.Constant) for one in node.elts)
        return node if is_data and self._pattern is SEVERAL_WORDS else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) and self._pattern.search(node.value):
            return ast.copy_location(Scrambled(scrambled(node.value)), node)
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.FormattedValue:
        node.value = _Literals(is_certain=False).visit(node.value)
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.Dict:
        node.values = [self.visit(value) for value in node.values]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        if isinstance(node.value, ast.Dict):
            node.value = self.visit(node.value)
        return node


FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def _called(node: ast.Call) -> str:
    return getattr(node.func, "attr", None) or getattr(node.func, "id", "")


def _speaks(node: ast.Call) -> bool:
    """Whether a function takes sentences by position."""
    return _called(node).endswith("Error") or _called(node) in MAKERS


ASSIGNMENT = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr


def _assigned_names(node: ASSIGNMENT) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {one.id for t in targets for one in ast.walk(t) if isinstance(one, ast.Name)}


def _returns(function: FUNCTION) -> list[ast.Return]:
    found = (n for n in ast.walk(function) if isinstance(n, ast.Return))
    return [one for one in found if one.value is not None]


def _has_sentence(function: FUNCTION, end: ast.Return) -> bool:
    """Whether a kind is returned together with its sentences, or the function says why."""
    if function.name.lstrip("_").startswith(("why", "reason_to")):
        return True
    elements = end.value.elts if isinstance(end.value, ast.Tuple) else []
    return any(
        isinstance(one, ast.Attribute) and getattr(one.value, "id", "") == "Kind"
        for one in elements
    )


def _expressions(tree: ast.AST, names: set[str]) -> Iterator[ast.AST]:
    """What a module makes sentences of, and what it makes of these names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (k.value for k in node.keywords if k.arg in NAMES)
            yield from node.args if _speaks(node) else ()
        elif isinstance(node, ASSIGNMENT):
            if node.value is not None and _assigned_names(node) & (names | NAMES):
                yield node.value
        elif isinstance(node, FUNCTION):
            yield from (
                end.value
                for end in _returns(node)
                if node.name in names or _has_sentence(node, end)
            )


def _said(expression: ast.AST) -> Iterator[ast.AST]:
    """Everything within it but what is only compared."""
    yield expression
    for one in ast.iter_child_nodes(expression):
        if not isinstance(one, ast.Compare):
            yield from _said(one)


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _parts(tree: ast.AST) -> set[str]:
    """Variables and functions of a module of which it makes sentences, directly or not."""
    names: set[str] = set()
    while True:
        inner = [one for found in _expressions(tree, names) for one in _said(found)]
        used = {one.id for one in inner if isinstance(one, ast.Name)}
        used |= {one.attr for one in inner if isinstance(one, ast.Attribute) and _is_own(one)}
        if used <= names:
            return names
        names |= used


def _takers(tree: ast.AST) -> set[str]:
    """A module's functions that take sentences."""
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, FUNCTION)
        and NAMES & {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}
    }


class _Spoken(ast.NodeTransformer):
    """Scrambles whatever has several words and is no docstring."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        is_done = isinstance(node, Scrambled)
        return node if is_done else _Literals(is_certain=False).visit_Constant(node)


class _Sentences(ast.NodeTransformer):
    """Finds the sentences of a module."""

    def __init__(self, tree: ast.AST, *, is_edge: bool) -> None:
        self._is_edge = is_edge
        self._takers = _takers(tree)
        self._parts = _parts(tree) | self._takers

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if _speaks(node):
            node.args = [_Literals().visit(one) for one in node.args]
        elif _called(node) in self._takers:
            node.args = [_Literals(is_certain=False).visit(one) for one in node.args]
        for keyword in node.keywords:
            if keyword.arg in NAMES:
                keyword.value = _Literals().visit(keyword.value)
            elif keyword.arg in self._parts or _called(node) in NAMERS:
                keyword.value = _Literals(is_certain=False).visit(keyword.value)
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        for at, key in enumerate(node.keys):
            if isinstance(key, ast.Constant) and key.value in NAMES:
                node.values[at] = _Literals().visit(node.values[at])
        return node

    def _assigned(self, node: ASSIGNMENT) -> ast.AST:
        self.generic_visit(node)
        if node.value is not None and _assigned_names(node) & (NAMES | self._parts):
            is_certain = bool(_assigned_names(node) & NAMES)
            node.value = _Literals(is_certain=is_certain).visit(node.value)
        return node

    visit_Assign = visit_AnnAssign = visit_AugAssign = visit_NamedExpr = _assigned  # noqa: N815

    def visit_FunctionDef(self, node: FUNCTION) -> ast.AST:
        self.generic_visit(node)
        if node.name in self._parts:
            weak = _Literals(is_certain=False)
            node.args.defaults = [weak.visit(one) for one in node.args.defaults]
        for end in _returns(node):
            if _has_sentence(node, end):
                end.value = _Literals().visit(end.value)
            elif node.name in self._parts:
                end.value = _Literals(is_certain=False).visit(end.value)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        return _Literals().visit(node) if self._is_edge else node


_seen: set[str] = set()


def note(problem: Any) -> None:
    """Keep a problem's sentences for ``missed.py``; every process notes each one once."""
    # Hypothesis makes sentences of what it reads in our modules.
    if (hypothesis := sys.modules.get("hypothesis")) and hypothesis.currently_in_test_context():
        return
    new = {problem.cause, problem.fix} - _seen
    _seen.update(new)
    with Path(os.environ[SEEN]).open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in new)


def _with_notes(tree: ast.AST) -> ast.AST:
    """The module of :class:`Problem`, where whatever is made or read passes by :func:`note`."""
    (made,) = (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == "Problem")
    made.body += ast.parse("def __post_init__(self): _note(self)").body
    return tree


def transformed(name: str, data: bytes | str) -> ast.AST:
    tree = ast.parse(data)
    if name == FOREIGN:
        return tree
    tree = _Sentences(tree, is_edge=name in EDGES).visit(tree)
    tree = _Spoken().visit(tree) if name.startswith(SPOKEN) else tree
    return _with_notes(tree) if name == PROBLEM else tree


def _own(path: str) -> str:
    """Never a compiled module of the readable package."""
    return f"{_COMPILED}{path}" if path.endswith(".pyc") else path


class _Loader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data, path, *, _optimization=-1):  # type: ignore[no-untyped-def, override]
        tree = transformed(self.name, data)
        return compile(ast.fix_missing_locations(tree), path, "exec", optimize=_optimization)

    def exec_module(self, module: ModuleType) -> None:
        if self.name == PROBLEM:
            vars(module)["_note"] = note
        super().exec_module(module)

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
    if SEEN not in os.environ:
        os.environ[SEEN] = tempfile.mkstemp(prefix="mntrain-sentences-")[1]
    paths = os.environ.get("PYTHONPATH", "")
    if str(HERE) not in paths.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [paths])])
