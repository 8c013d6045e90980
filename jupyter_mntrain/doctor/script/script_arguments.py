"""Script arguments: checks arguments against a script's own argparse without running it. Pure."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

_TYPES: Final[Mapping[str, Any]] = {"int": int, "float": float, "str": str, "Path": Path}
_GROUPS: Final = ("add_argument_group", "add_mutually_exclusive_group")
_HARMLESS: Final = frozenset({*_GROUPS, "add_argument", "print_help", "format_help"})
"""Methods of a parser that may be called without changing what it takes in another way."""
_KEPT: Final = ("nargs", "const", "choices", "required", "dest", "metavar")

UNKNOWN: Final = object()
"""A default that is known only at run time."""


class Parsed(NamedTuple):
    """The result of parsing the arguments.

    Args:
        error: as argparse would print it, before it ends with exit code 2; empty if it takes them.
        values: of the options, by their names in the namespace.
        name: of the variable that gets them.
    """

    error: str = ""
    values: Mapping[str, object] = {}
    name: str = ""


class _UnreadableParserError(Exception):
    """The parser is built in a way that its source does not show."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise argparse.ArgumentError(None, message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise _UnreadableParserError(message or str(status))  # --help, --version


def parsed(tree: ast.Module, given: Sequence[str]) -> Parsed | None:
    """Parse arguments as the script's own parser would; ``None`` if its source does not show how.

    The script may have no parser or several, or use what is not known here.
    """
    try:
        made = _made(tree)
        if made is None:
            return None
        parser, name = made
        values = vars(parser.parse_args(list(given)))
        changed = _changed(tree, name)
        kept = () if changed is None else values.keys() - changed
        return Parsed(values={one: values[one] for one in kept}, name=name)
    except argparse.ArgumentError as error:
        return Parsed(error=str(error))
    except (_UnreadableParserError, TypeError, ValueError):
        return None


def _made(tree: ast.Module) -> tuple[_Parser, str] | None:
    """Find the parser and the name of the variable that gets its result."""
    names = {name: call for name, call in _assigned(tree) if _called(call) == "ArgumentParser"}
    if len(names) != 1:
        return None
    ((own, call),) = names.items()
    parser = _Parser(**_constants(call, ("prog", "allow_abbrev", "prefix_chars", "add_help")))
    if {one.arg for one in call.keywords} & {"parents", "fromfile_prefix_chars", None}:
        return None
    groups = {own} | {
        name for name, one in _assigned(tree) if _called(one) in _GROUPS and _owner(one) == own
    }
    _refuse_other_uses(tree, own, groups)
    for one in _calls(tree):
        if _called(one) == "add_argument" and _owner(one) in groups:
            _add(parser, one)
    results = [name for name, one in _assigned(tree) if _is_parse(one, own)]
    if len(results) != 1 or _changes_words(tree):
        return None
    return parser, results[0]


def _changes_words(tree: ast.Module) -> bool:
    """Whether a script changes ``sys.argv`` before it parses it."""
    return any(
        isinstance(node, ast.Assign | ast.AugAssign | ast.Delete | ast.Expr)
        and re.match(r"(del )?sys\.argv( \+?=|\[.*\] =|\.\w+\(|\[)", ast.unparse(node))
        for node in ast.walk(tree)
    )


def _changed(tree: ast.Module, name: str) -> set[str] | None:
    """Return the arguments that a script changes after parsing; ``None`` if that may be any."""
    found: set[str] = set()
    is_any = False
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=attribute, ctx=ast.Store() | ast.Del()):
                found.add(attribute)
            case ast.Call(func=ast.Name(id="setattr" | "vars"), args=[ast.Name(id=of), *_]):
                is_any |= of == name
            case ast.Attribute(value=ast.Name(id=of), attr="__dict__"):
                is_any |= of == name
    stores = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
    ]
    return None if is_any or len(stores) > 1 else found


def _refuse_other_uses(tree: ast.Module, own: str, groups: set[str]) -> None:
    """Refuse a parser that is passed on or filled in a loop, as it may take further arguments."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Name) and node.id in groups):
            continue
        if isinstance(node.ctx, ast.Store):
            continue
        method, call = parents.get(node), parents.get(parents.get(node, node))
        if not (isinstance(method, ast.Attribute) and isinstance(call, ast.Call)):
            raise _UnreadableParserError(node.id)
        if method.attr not in _HARMLESS and not _is_parse(call, own):
            raise _UnreadableParserError(method.attr)
        if any(isinstance(one, ast.For | ast.While | ast.If) for one in _around(call, parents)):
            raise _UnreadableParserError("it is filled in a loop, or on a condition")


def _around(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    inner = node
    while (outer := parents.get(inner)) is not None:
        is_main = isinstance(outer, ast.If) and "__name__" in ast.unparse(outer.test)
        if not is_main:
            yield outer
        inner = outer


def _is_parse(call: ast.Call, own: str) -> bool:
    is_own = _called(call) == "parse_args" and _owner(call) == own
    return is_own and not call.args and not call.keywords


def _add(parser: _Parser, call: ast.Call) -> None:
    flags = [_constant(one) for one in call.args]
    if not all(isinstance(one, str) for one in flags) or None in {one.arg for one in call.keywords}:
        raise _UnreadableParserError(ast.unparse(call))
    words = {one.arg: one.value for one in call.keywords if one.arg is not None}
    options: dict[str, Any] = {
        name: value
        for name in _KEPT
        if name in words and (value := _constant(words[name])) is not UNKNOWN
    }
    if "nargs" in words and "nargs" not in options:
        raise _UnreadableParserError("nargs")
    if "action" in words:
        options["action"] = _action(words["action"])
    if "default" in words:
        options["default"] = _constant(words["default"])
    kind = words.get("type")
    if kind is not None:
        # A type of the script's own takes what it takes: its value is not known.
        options["type"] = _TYPES.get(ast.unparse(kind).rpartition(".")[2], lambda _: UNKNOWN)
    try:
        parser.add_argument(*flags, **options)
    except argparse.ArgumentError as error:
        raise _UnreadableParserError(str(error)) from None


def _action(node: ast.expr) -> Any:
    if ast.unparse(node).endswith("BooleanOptionalAction"):
        return argparse.BooleanOptionalAction
    found = _constant(node)
    if not isinstance(found, str):
        raise _UnreadableParserError("action")
    return found


def _constants(call: ast.Call, names: Sequence[str]) -> dict[str, Any]:
    found = {one.arg: _constant(one.value) for one in call.keywords if one.arg in names}
    return {name: value for name, value in found.items() if name and value is not UNKNOWN}


def _constant(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return UNKNOWN


def _calls(tree: ast.Module) -> list[ast.Call]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Yield names to which the result of a call is assigned, with the call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value


def _called(call: ast.Call) -> str:
    """Return the last part of the name of the called function."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _owner(call: ast.Call) -> str:
    """Return the variable whose method is called."""
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    return of.id if isinstance(of, ast.Name) else ""
