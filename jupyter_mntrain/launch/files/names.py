"""Large names: parses names like ``models:llama``, which are valid on every node."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind

ROOTS = ("models", "data")
"""Roots that every node has."""

_ROOT = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@-]{0,159}")
MOST_PARTS = 4


class LargeName(NamedTuple):
    """A name ``ROOT:NAME`` of a large file, which may have folders: ``models:meta/llama``."""

    root: str
    name: str

    def __str__(self) -> str:
        return f"{self.root}:{self.name}"


def is_root(text: str) -> bool:
    return _ROOT.fullmatch(text) is not None


def is_large_name(text: str) -> bool:
    """Whether a text looks like a large file's name, not like a path."""
    root, colon, name = text.partition(":")
    return bool(colon and name and is_root(root))


def parse_large_name(text: str) -> LargeName:
    """Parse ``ROOT:NAME``.

    Raises:
        SpecError: it is none, or leads elsewhere.
    """
    root, _, name = text.partition(":")
    return checked_large_name(root, name)


def checked_large_name(root: str, name: str) -> LargeName:
    """Check a name that was received.

    Raises:
        SpecError: it is none, or leads elsewhere.
    """
    parts = name.split("/")
    if not (is_root(root) and len(parts) <= MOST_PARTS and all(map(_PART.fullmatch, parts))):
        raise SpecError(
            f"{f'{root}:{name}'[:200]!r} is not the name of a model or data set",
            fix="use ROOT:NAME, like models:llama, of letters, digits, and . _ + @ - /",
        )
    return LargeName(root, name)


def parse_root(text: str) -> tuple[str, Path]:
    """Parse ``NAME=PATH``.

    Raises:
        SpecError: it is something else, or the path is relative.
    """
    name, equals, path = text.partition("=")
    if not (equals and is_root(name) and PurePosixPath(path).is_absolute()):
        raise SpecError(
            f"--root {text} is not NAME=PATH", fix="use an absolute path, like models=/data/models"
        )
    return name, Path(path)


def inside(path: Path, root: Path) -> Path:
    """Resolve a path, which must lead below a root.

    Raises:
        RefusedError: a symbolic link leads out of it, or it cannot be followed.
    """
    try:
        real, top = path.resolve(), root.resolve()
    except (OSError, RuntimeError) as error:
        raise _leads_out(path) from error
    if real == top or not real.is_relative_to(top):
        raise _leads_out(path)
    return real


def _leads_out(path: Path) -> RefusedError:
    return RefusedError(
        f"{path} leads out of the folder that its owner has allowed",
        kind=Kind.NOT_ALLOWED,
        fix="replace the symbolic link by the files that it names",
    )
