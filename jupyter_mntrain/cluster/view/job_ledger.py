"""Job ledger: stores the agents' reports about jobs, rolled up per job."""

from __future__ import annotations

from collections.abc import Iterable, Set

import msgspec

from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.lifecycle.rollup import roll_up, unknown_part
from jupyter_mntrain.model.lifecycle.state import UNDER_WAY
from jupyter_mntrain.model.records.job import TERMINAL, JobRecord, JobView


class JobLedger:
    """Stores the newest record of every job from every node."""

    def __init__(self) -> None:
        self._records: dict[JobId, dict[NodeId, JobRecord]] = {}
        self._reachable: frozenset[NodeId] = frozenset()
        self._views: dict[JobId, JobView] = {}

    def replace(self, node_id: NodeId, records: Iterable[JobRecord]) -> None:
        """Replace all records of a node, when its stream starts."""
        for by_node in self._records.values():
            by_node.pop(node_id, None)
        for record in records:
            self._records.setdefault(record.job_id, {})[node_id] = record
        self._records = {job_id: nodes for job_id, nodes in self._records.items() if nodes}
        self._rebuild()

    def update(self, record: JobRecord) -> bool:
        """Store a record; ``False`` if a newer one is known, as after a late reply."""
        by_node = self._records.setdefault(record.job_id, {})
        known = by_node.get(record.part.node_id)
        if known is not None and _age(record) < _age(known):
            return False
        by_node[record.part.node_id] = record
        self._views[record.job_id] = self._view(by_node)
        return True

    def set_reachable(self, node_ids: Set[NodeId]) -> bool:
        """Set which nodes answer; ``True`` if that changed. Parts of other nodes are unknown."""
        if node_ids == self._reachable:
            return False
        self._reachable = frozenset(node_ids)
        self._rebuild()
        return True

    def views(self) -> tuple[JobView, ...]:
        """All jobs, newest first."""
        return tuple(sorted(self._views.values(), key=lambda v: (-v.attempt.submitted_s, v.job_id)))

    def _rebuild(self) -> None:
        self._views = {job_id: self._view(by_node) for job_id, by_node in self._records.items()}

    def _view(self, by_node: dict[NodeId, JobRecord]) -> JobView:
        return roll_up(self._as_known(node_id, record) for node_id, record in by_node.items())

    def _as_known(self, node_id: NodeId, record: JobRecord) -> JobRecord:
        """The record; its part is unknown if it had not ended and the node does not answer."""
        if node_id in self._reachable or record.part.state in TERMINAL:
            return record
        for placement in record.attempt.placements:
            if placement.node_id == node_id:
                return msgspec.structs.replace(record, part=unknown_part(placement))
        return record


def _age(record: JobRecord) -> tuple[int, int]:
    state = record.part.state
    return record.attempt.number, (len(UNDER_WAY) if state in TERMINAL else UNDER_WAY.index(state))
