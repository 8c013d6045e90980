"""Entry point of the SLURM scheduler backend."""

from __future__ import annotations

from jupyter_mntrain.model.sources.source import NodeSource
from jupyter_mntrain.sources.slurm.slurm_options import OPTIONS, TITLE

__all__ = ["OPTIONS", "TITLE", "source"]


def source() -> NodeSource:
    """Load the backend with its libraries."""
    from jupyter_mntrain.sources.slurm.slurm_source import SlurmSource

    return SlurmSource()
