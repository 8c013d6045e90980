"""Registry of sources, by name. What a source declares is light; itself it is loaded when used."""

from __future__ import annotations

from importlib import import_module
from typing import Final, NamedTuple

from jupyter_mntrain.model.sources.options import SourceOption
from jupyter_mntrain.model.sources.source import NodeSource


class KnownSource(NamedTuple):
    """Where a source is defined.

    Args:
        options: module with its ``TITLE`` and ``OPTIONS``, which loads no library.
        module, kind: its class.
    """

    options: str
    module: str
    kind: str


_ROOM = "jupyter_mntrain.sources"

_SOURCES: Final[dict[str, KnownSource]] = {
    "slurm": KnownSource(
        f"{_ROOM}.slurm.slurm_options", f"{_ROOM}.slurm.slurm_source", "SlurmSource"
    ),
    "kubernetes": KnownSource(
        f"{_ROOM}.kubernetes.options",
        f"{_ROOM}.kubernetes.kubernetes_source",
        "KubernetesSource",
    ),
}
"""By name, as in ``--on NAME``."""

SOURCES: Final[tuple[str, ...]] = tuple(_SOURCES)


def options_of(name: str) -> tuple[SourceOption, ...]:
    """What a person can choose of a source besides nodes, GPUs and time."""
    options: tuple[SourceOption, ...] = import_module(_SOURCES[name].options).OPTIONS
    return options


def title_of(name: str) -> str:
    """Its name in sentences."""
    title: str = import_module(_SOURCES[name].options).TITLE
    return title


def source_named(name: str) -> NodeSource:
    """The source itself."""
    known = _SOURCES[name]
    source: NodeSource = getattr(import_module(known.module), known.kind)()
    return source
