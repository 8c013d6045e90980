"""Kubernetes as a scheduler backend: what its entry point names."""

from __future__ import annotations

from jupyter_mntrain.model.sources.source import NodeSource
from jupyter_mntrain.sources.kubernetes.options import OPTIONS, TITLE

__all__ = ["OPTIONS", "TITLE", "source"]


def source() -> NodeSource:
    """The backend itself, with the libraries that it needs."""
    from jupyter_mntrain.sources.kubernetes.kubernetes_source import KubernetesSource

    return KubernetesSource()
