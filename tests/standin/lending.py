"""Nodes whose owners do not lend everything."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.cluster import NodeView
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.lending import Lending


def lent(view: NodeView, lending: Lending, problem: Problem | None = None) -> NodeView:
    """A node of which that is lent; a problem says why it takes no jobs now."""
    assert view.info is not None
    info = msgspec.structs.replace(view.info, lending=lending, problem=problem)
    return msgspec.structs.replace(view, info=info, problem=problem)
