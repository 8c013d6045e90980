"""Modules: which of those that a script imports an interpreter of jobs does not find."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence

from jupyter_mntrain.agent.machine.software.versions import ask_python
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import SpecError

KEPT_S = tunables.seconds("doctor.modules_kept_s")

_QUERY = r"""
import importlib.util, json, os, re
MADE_LATER = r"import \*|__getattr__|globals\(\)|sys\.modules|exec\(|setattr\("
def text_of(place):
    with open(place, encoding="utf-8") as file: return file.read()
def is_in(folders, name):
    return any(one.split(".")[0] == name for folder in folders for one in os.listdir(folder))
def lacks_name(found, inner, name):
    place, folders = found.origin, list(found.submodule_search_locations or ())
    for one in inner:
        places = [os.path.join(folder, one, "__init__.py") for folder in folders]
        places += [os.path.join(folder, one + ".py") for folder in folders]
        there = next(filter(os.path.isfile, places), None)
        if there is None:
            return not is_in(folders, one) and not re.search(MADE_LATER, text_of(place))
        place, folders = there, [os.path.dirname(there)] * there.endswith("__init__.py")
    if is_in(folders, name): return False
    return not re.search(r"\b%s\b|%s" % (re.escape(name), MADE_LATER), text_of(place))
def lacks(asked):
    module, _, name = asked.partition(":")
    first, *inner = module.split(".")
    try:
        found = importlib.util.find_spec(first)
        return lacks_name(found, inner, name) if found and name else not (found or name)
    except Exception: return False
print(json.dumps({"lacking": [one for one in ASKED if lacks(one)]}))
"""

_NAME = re.compile(r"\w+|[\w.]+:\w+")


class ModuleSearch:
    """Looks for modules. What was found is not looked for again for ``doctor.kept_s``: starting an
    interpreter for it is most of what a launch asks of a node. Safe from any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found: dict[tuple[str, frozenset[tuple[str, str]], str], float] = {}

    def lacking(
        self, python: str, names: Sequence[str], loaders: Mapping[str, str]
    ) -> tuple[str, ...] | None:
        """Like :func:`lacking_modules`."""
        now_s, given = self._clock(), frozenset(loaders.items())
        known = {one: at_s for one, at_s in self._found.items() if now_s - at_s < KEPT_S}
        asked = [name for name in names if (python, given, name) not in known]
        lacking = lacking_modules(python, asked, loaders) if asked else ()
        if lacking is not None:
            new = {(python, given, name): now_s for name in asked if name not in lacking}
            self._found = known | new
        return lacking


def lacking_modules(
    python: str, names: Sequence[str], loaders: Mapping[str, str]
) -> tuple[str, ...] | None:
    """Find them without importing anything; ``None`` if the interpreter does not run. Blocks.

    A module lacks a name that its text does not have, where that does not make names as it runs.

    Args:
        names: modules by their first names, and names in modules: ``torch.distributed:all_reduce``.
        loaders: variables that decide what it finds, besides the agent's own.
    """
    # To look for what lies in a package, Python would import that.
    names = [name for name in names if _NAME.fullmatch(name)]
    try:
        found = ask_python(python, _QUERY.replace("ASKED", repr(names)), {**os.environ, **loaders})
    except SpecError:
        return None
    return tuple(found["lacking"])
