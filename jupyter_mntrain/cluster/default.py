"""Default cluster: reads its name and agents from the environment."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_mntrain.model.environment import (
    AGENTS_VARIABLE,
    CLUSTER_VARIABLE,
    DEFAULT_CLUSTER,
)


def default_cluster(environment: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the cluster's name and the addresses of its agents."""
    name = environment.get(CLUSTER_VARIABLE) or DEFAULT_CLUSTER
    return name, tuple(environment.get(AGENTS_VARIABLE, "").replace(",", " ").split())
