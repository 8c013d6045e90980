"""Modules: which of those that a script imports an interpreter of jobs does not find."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from jupyter_mntrain.agent.machine.software.versions import ask_python
from jupyter_mntrain.model.errors import SpecError

_QUERY = """
import importlib.util, json
def lacks(name):
    try: return importlib.util.find_spec(name) is None
    except Exception: return False
print(json.dumps({"lacking": [name for name in NAMES if lacks(name)]}))
"""


def lacking_modules(
    python: str, names: Sequence[str], loaders: Mapping[str, str]
) -> tuple[str, ...] | None:
    """Find them without importing anything; ``None`` if the interpreter does not run. Blocks.

    Args:
        loaders: variables that decide what it finds, besides the agent's own.
    """
    # To look for what lies in a package, Python would import that.
    names = [name for name in names if name.isidentifier()]
    try:
        found = ask_python(python, _QUERY.replace("NAMES", repr(names)), {**os.environ, **loaders})
    except SpecError:
        return None
    return tuple(found["lacking"])
