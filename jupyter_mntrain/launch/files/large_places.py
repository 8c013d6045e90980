"""Large places: resolves names like ``models:llama`` in a recipe to paths on this node."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from jupyter_mntrain.launch.files.names import inside, is_large_name, parse_large_name
from jupyter_mntrain.model.environment import ROOTS_VARIABLE
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.whereabouts import in_home


def told_roots(folders: Mapping[str, Path]) -> dict[str, str]:
    """Return the variable by which an agent passes the paths of its roots to its jobs."""
    return {ROOTS_VARIABLE: json.dumps({name: str(path) for name, path in folders.items()})}


def place_of(text: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the local path for a path or a large file's name.

    Args:
        environment: of a job, where its agent tells the roots.

    Raises:
        SpecError: it is a name that is not valid, or of a root that this node does not have.
        RefusedError: a symbolic link leads out of the root.
    """
    if not is_large_name(text) or Path(text).exists():
        return in_home(text)
    name = parse_large_name(text)
    roots = dict(json.loads(environment.get(ROOTS_VARIABLE) or "{}"))
    if name.root not in roots:
        known = f"it has {', '.join(roots)}" if roots else "only jobs of an agent know them"
        raise SpecError(
            f"{text}: this node has no root {name.root!r}; {known}",
            fix=f"start its agent with --root {name.root}=PATH, or name the folder by its path",
        )
    root = Path(roots[name.root])
    path = root / name.name
    inside(path, root)
    return path
