"""Entry point of the Kubernetes scheduler backend."""

from __future__ import annotations

from jupyter_mntrain.model.sources.source import NodeSource
from jupyter_mntrain.sources.kubernetes.options import OPTIONS, TITLE

__all__ = ["OPTIONS", "TITLE", "source"]


def source() -> NodeSource:
    """Load the backend with its libraries."""
    from jupyter_mntrain.sources.kubernetes.kubernetes_source import KubernetesSource

    return KubernetesSource()
