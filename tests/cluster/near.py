"""Clusters of stand-in agents that have been open for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.model.records.job import JobSpec, Participant

Open = Callable[..., Cluster]


def spec(*nodes: str, **fields: Any) -> JobSpec:
    names = nodes or ("node1", "node2")
    participants = tuple(Participant(node=name) for name in names)
    return JobSpec(entry=("-m", "trainer"), participants=participants, **fields)
