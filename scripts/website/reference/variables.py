"""Variables: the environment variables that drivers read and that jobs find."""

from __future__ import annotations

import ast
import inspect

from jupyter_mntrain.model import environment, tunables
from scripts.website.reference.tables import cell, code, table


def page() -> str:
    rows = [(code(name), cell(meaning)) for name, meaning in _told()]
    lines = [
        "# Environment variables",
        "",
        (
            "Those that mntrain reads, or that it sets for the ranks of a job. "
            "[Your own script](../own_scripts.md) has what else torchrun sets there."
        ),
        "",
        *table(("variable", "meaning"), rows),
        (
            f"`{tunables.CONFIG_VARIABLE}` names a file of settings, and "
            "`MNTRAIN_<SECTION>_<NAME>` changes one of them: [All settings](settings.md)."
        ),
    ]
    return "\n".join(lines)


def _told() -> list[tuple[str, str]]:
    """Each ``NAME_VARIABLE = "NAME"`` with the docstring below it."""
    body = ast.parse(inspect.getsource(environment)).body
    found = list[tuple[str, str]]()
    for number, node in enumerate(body):
        if not isinstance(node, ast.Assign) or not ast.unparse(node).partition(" ")[0].endswith(
            "_VARIABLE"
        ):
            continue
        match node.value, body[number + 1]:
            case ast.Constant(value=str(name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                found.append((name, meaning))
            case _:
                raise ValueError(f"model/environment.py:{node.lineno}: a variable has no docstring")
    return found
