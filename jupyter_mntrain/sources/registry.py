"""Registry of scheduler backends, by name. Declarations are cheap to load; a backend is loaded when
used.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from jupyter_mntrain.model.errors import SpecError, shortened
from jupyter_mntrain.model.sources.source import NodeSource, SourceOption

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "jupyter_mntrain.schedulers"
"""Entry points of backends, by the name in ``--on NAME``. Each is a module with ``TITLE``, its name
in sentences; ``OPTIONS``; and ``source()``, which returns its :class:`NodeSource`. Loading the
module loads no library: that is for ``source()``.
"""


@functools.cache
def _backends() -> Mapping[str, EntryPoint]:
    from importlib.metadata import entry_points  # most commands name no scheduler

    return {one.name: one for one in entry_points(group=GROUP)}


def sources() -> tuple[str, ...]:
    """Return the names of the backends of all installed packages."""
    return tuple(sorted(_backends()))


def options_of(name: str) -> tuple[SourceOption, ...]:
    """Return a backend's own options, besides nodes, GPUs and time."""
    options: tuple[SourceOption, ...] = _declared(name).OPTIONS
    return options


def title_of(name: str) -> str:
    """Return a backend's name for use in sentences."""
    title: str = _declared(name).TITLE
    return title


def source_named(name: str) -> NodeSource:
    """Load a backend by its name.

    Raises:
        SpecError: no installed package has it, or it cannot be loaded.
    """
    source: NodeSource = _declared(name).source()
    return source


def _declared(name: str) -> Any:
    found = _backends().get(name)
    if found is None:
        raise SpecError(
            f"no installed package provides the scheduler {name}",
            fix=f"use {' or '.join(sources())}, or install the package that has it here",
        )
    try:
        return found.load()
    except (ImportError, AttributeError) as error:
        package = found.dist.name if found.dist else found.module
        raise SpecError(
            f"the scheduler backend {name} of {package} cannot be loaded: {shortened(str(error))}",
            fix=f"install {package} again, in a version for this jupyter_mntrain",
        ) from None
