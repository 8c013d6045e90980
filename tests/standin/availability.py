"""Nodes whose owners do not offer everything."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.cluster import NodeView
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import Availability


def offered(view: NodeView, availability: Availability, problem: Problem | None = None) -> NodeView:
    """A node of which that is offered; a problem says why it takes no jobs now."""
    assert view.info is not None
    info = msgspec.structs.replace(view.info, availability=availability, problem=problem)
    return msgspec.structs.replace(view, info=info, problem=problem)
