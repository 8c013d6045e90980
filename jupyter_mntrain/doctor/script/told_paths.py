"""Evaluates expressions that name files in a script, as far as possible without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from jupyter_mntrain.doctor.script.script_arguments import Parsed

_WRAPPERS: Final = (
    "Path",
    "PurePath",
    "str",
    "fspath",
    "expanduser",
    "abspath",
    "realpath",
    "device",
)
_METHODS: Final = ("expanduser", "resolve", "absolute", "as_posix", "strip")

_MOST_VALUES: Final = 8
"""Most values remembered of one variable."""


class Told(NamedTuple):
    """A string, as far as it is known.

    Args:
        is_whole: otherwise more follows.
        is_given: a person gave it with the launch.
    """

    text: str
    is_whole: bool = True
    is_given: bool = False

    @property
    def path(self) -> str:
        """The file; if only the beginning of its path is known, the folder that it is in."""
        return self.text if self.is_whole else self.text.rpartition("/")[0]


class PathReader:
    """Evaluates expressions with the variables that were assigned before.

    Args:
        environment: that the launch gives.
        arguments: of the script, as its argparse takes them.
        words: the same, as they are given.
        script: the path of the script itself, as ``__file__`` has it.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        arguments: Parsed | None,
        words: Sequence[str] = (),
        script: str = "",
    ) -> None:
        self._environment, self._arguments, self._words = environment, arguments, words
        self._names: dict[str, Told | None] = {"__file__": Told(script)} if script else {}
        self._ever: dict[str, list[Told]] = {}

    @contextmanager
    def function(self, own: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[None]:
        """Enter a function: it has its own names, and its parameters are unknown."""
        outer, of = dict(self._names), own.args
        for one in (*of.posonlyargs, *of.args, *of.kwonlyargs, of.vararg, of.kwarg):
            if one is not None:
                self._names[one.arg] = None
        try:
            yield
        finally:
            changed = {
                name
                for node in ast.walk(own)
                if isinstance(node, ast.Global | ast.Nonlocal)
                for name in node.names
            }
            self._names = outer | dict.fromkeys(changed)

    def moments(self) -> Iterator[None]:
        """Give each variable, in turn, every value that it ever had."""
        for at in range(min(_MOST_VALUES, max(map(len, self._ever.values()), default=1))):
            self._names |= {
                name: found[min(at, len(found) - 1)] for name, found in self._ever.items()
            }
            yield

    def assign(self, name: str, value: ast.expr | None) -> None:
        """Record an assignment; after two different values, neither is known."""
        found = None if value is None else self.of(value)
        ever = self._ever.setdefault(name, []) if found is not None else []
        if found is not None and found not in ever:
            ever.append(found)
        if name in self._names and self._names[name] != found:
            found = None
        self._names[name] = found

    def forget(self) -> None:
        """Treat all variables as unknown from now on, if the script was given any arguments."""
        if self._words:
            self._names = dict.fromkeys(self._names)

    def of(self, node: ast.expr) -> Told | None:
        """Evaluate an expression; ``None`` if its value does not follow from the source."""
        match node:
            case ast.Constant(value=str() as text):
                return Told(text)
            case ast.Name(id=name):
                return self._names.get(name)
            case ast.JoinedStr(values=parts):
                return self._joined(list(parts))
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._below(left, right)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._joined([left, right])
            case ast.BoolOp(op=ast.Or(), values=[first, *_]):
                found = self.of(first)
                return found if found is not None and found.text else None
            case ast.Attribute(value=of, attr=attribute):
                return self._attribute(of, attribute)
            case ast.Subscript(value=of, slice=ast.Constant(value=at)):
                return self._item(of, at)
        return self._call(node) if isinstance(node, ast.Call) else None

    def _call(self, node: ast.Call) -> Told | None:
        called = ast.unparse(node.func)
        last = called.rpartition(".")[2]
        first = node.args[0] if node.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            of = node.func.value if isinstance(node.func, ast.Attribute) else None
            if called.endswith("getenv") or (last == "get" and of and _is_environment(of)):
                default = node.args[1] if len(node.args) > 1 else None
                return self._variable(first.value) or (self.of(default) if default else None)
        if called.endswith("path.join") or (last in ("Path", "PurePath") and len(node.args) > 1):
            found = self.of(node.args[0])
            for part in node.args[1:]:
                found = _under(found, self.of(part))
            return found
        if last in _WRAPPERS and len(node.args) == 1:
            return self.of(node.args[0])
        if last == "dirname" and first is not None:
            return self._parent(first)
        if last in _METHODS and isinstance(node.func, ast.Attribute):
            return self.of(node.func.value)
        if last == "joinpath" and isinstance(node.func, ast.Attribute) and first is not None:
            return self._below(node.func.value, first)
        return None

    def _variable(self, name: str) -> Told | None:
        given = self._environment.get(name)
        return None if given is None else Told(given, is_given=True)

    def _attribute(self, of: ast.expr, attribute: str) -> Told | None:
        """Evaluate an argument of the script, or a part of a path."""
        arguments = self._arguments
        if attribute == "parent":
            return self._parent(of)
        if arguments is None or not isinstance(of, ast.Name) or of.id != arguments.name:
            return None
        value = arguments.values.get(attribute)
        return Told(str(value), is_given=True) if isinstance(value, str | PurePosixPath) else None

    def _joined(self, parts: list[ast.expr]) -> Told | None:
        """Join strings up to the first that is not known."""
        found = Told("")
        for part in parts:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            more = self.of(inner)
            if more is None:
                return found._replace(is_whole=False) if found.text else None
            given = found.is_given or more.is_given
            found = Told(found.text + more.text, more.is_whole, given)
            if not more.is_whole:
                break
        return found

    def _below(self, left: ast.expr, right: ast.expr) -> Told | None:
        return _under(self.of(left), self.of(right))

    def _parent(self, of: ast.expr) -> Told | None:
        found = self.of(of)
        if found is None or not found.is_whole or found.text in ("", "."):
            return None  # the folder above the one that a script runs in
        return found._replace(text=str(PurePosixPath(found.text).parent))

    def _item(self, of: ast.expr, at: object) -> Told | None:
        """Evaluate an environment variable, an item of ``sys.argv``, or a path's parent folder."""
        if isinstance(at, str):
            return self._variable(at) if _is_environment(of) else None
        if not isinstance(at, int):
            return None
        if isinstance(of, ast.Attribute) and of.attr == "parents":
            found = self.of(of.value)
            above = PurePosixPath(found.text).parents if found is not None else ()
            is_there = found is not None and found.is_whole and 0 <= at < len(above)
            return found._replace(text=str(above[at])) if found and is_there else None
        is_given = ast.unparse(of) in ("sys.argv", "argv") and 0 < at <= len(self._words)
        return Told(self._words[at - 1], is_given=True) if is_given else None


def _under(left: Told | None, right: Told | None) -> Told | None:
    """Join two paths."""
    if left is None or not left.is_whole:
        return left
    if right is None:
        return Told(f"{left.text.rstrip('/')}/", is_whole=False, is_given=left.is_given)
    text = str(PurePosixPath(left.text, right.text))
    return Told(text, right.is_whole, left.is_given or right.is_given)


def _is_environment(node: ast.expr) -> bool:
    return ast.unparse(node) in ("os.environ", "environ")
