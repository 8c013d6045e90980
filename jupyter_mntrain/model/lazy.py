"""Loading: imports a package's public names on first use, and speeds up slow imports."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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


@contextmanager
def heavy_imports() -> Iterator[None]:
    """Import with garbage collection off, as objects that modules create stay anyway.

    Looking at all of it again and again took 0.9 of the 6.3 s of a processor that importing the
    trainer takes (medians of 5), and would go on doing so while it trains.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
        gc.freeze()
