"""SLURM as a scheduler backend: what its entry point names."""

from __future__ import annotations

from jupyter_mntrain.model.sources.source import NodeSource
from jupyter_mntrain.sources.slurm.slurm_options import OPTIONS, TITLE

__all__ = ["OPTIONS", "TITLE", "source"]


def source() -> NodeSource:
    """The backend itself, with the libraries that it needs."""
    from jupyter_mntrain.sources.slurm.slurm_source import SlurmSource

    return SlurmSource()
