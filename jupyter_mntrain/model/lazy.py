"""Lazy names: a package's public names, each imported from its module on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Make a package's ``__getattr__`` (PEP 562).

    Args:
        homes: the module that defines a name, by name.
    """

    def get(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get
