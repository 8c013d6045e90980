"""Lightning: the number of nodes that a script passes to its Trainer. Pure.

It does not take them from torchrun. With a number that is not the launch's it raises, or trains on
each rank alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jupyter_mntrain.model._record import Record

_PACKAGES = ("lightning", "pytorch_lightning", "lightning_fabric")
_CLASSES = ("Trainer", "Fabric")


class ToldNodes(Record, frozen=True):
    """The ``num_nodes`` that a ``Trainer`` or ``Fabric`` gets in a line; 1 by default."""

    name: str
    number: int
    line: int


def told_nodes(tree: ast.AST) -> tuple[ToldNodes, ...]:
    """Return each number of nodes; nothing if one of them is not a number in the source."""
    modules, names = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {one.asname or one.name for one in node.names if _is_of_it(one.name)}
        elif isinstance(node, ast.ImportFrom) and _is_of_it(node.module or ""):
            names |= {one.asname or one.name for one in node.names if one.name in _CLASSES}
            modules |= {one.asname or one.name for one in node.names}
    known = {*names, *(f"{module}.{name}" for module in modules for name in _CLASSES)}
    found = list(_told(tree, known)) if known else []
    return tuple(one for one in found if one is not None) if None not in found else ()


def _is_of_it(module: str) -> bool:
    return module.partition(".")[0] in _PACKAGES


def _told(tree: ast.AST, known: set[str]) -> Iterator[ToldNodes | None]:
    """Yield the number of nodes of each call; ``None`` if the source does not tell it."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or (name := ast.unparse(call.func)) not in known:
            continue
        given = {one.arg: one.value for one in call.keywords}
        match given.get("num_nodes", ast.Constant(1)):
            case ast.Constant(value=int() as number) if None not in given and not call.args:
                yield ToldNodes(name, number, call.lineno)
            case _:
                yield None
