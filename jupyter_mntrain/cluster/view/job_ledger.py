"""Job ledger: stores the agents' reports about jobs, rolled up per job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.lifecycle.rollup import START_PATIENCE_S, roll_up, unknown_part
from jupyter_mntrain.model.lifecycle.state import UNDER_WAY
from jupyter_mntrain.model.records.job import TERMINAL, JobRecord, JobView, Placement
from jupyter_mntrain.model.records.node import NodeInfo

_Whereabouts = tuple[str, frozenset[str]]
"""Name and addresses of a node."""


class JobLedger:
    """Stores the newest record of every job from every node.

    Args:
        clock: for the age of jobs.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: dict[JobId, dict[NodeId, JobRecord]] = {}
        self._reachable: dict[NodeId, _Whereabouts] = {}
        self._told: set[NodeId] = set()
        """Nodes that have sent all their records."""
        self._first_seen_s: dict[JobId, float] = {}
        self._is_to_settle = False
        """Whether a record is missing that may still arrive."""
        self._views: dict[JobId, JobView] = {}

    def replace(self, node_id: NodeId, records: Iterable[JobRecord]) -> None:
        """Replace all records of a node, when its stream starts."""
        self._told.add(node_id)
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

    def set_reachable(self, nodes: Iterable[NodeInfo]) -> bool:
        """Set which nodes answer; ``True`` if a job's view may have changed. Parts of other nodes
        are unknown. Call often: a missing record counts as lost after a while.
        """
        reachable = {node.node_id: (node.name, frozenset(node.addresses)) for node in nodes}
        if reachable == self._reachable and not self._is_to_settle:
            return False
        self._reachable = reachable
        self._rebuild()
        return True

    def views(self) -> tuple[JobView, ...]:
        """All jobs, newest first."""
        return tuple(sorted(self._views.values(), key=lambda v: (-v.attempt.submitted_s, v.job_id)))

    def _rebuild(self) -> None:
        self._is_to_settle = False
        self._first_seen_s = {
            job_id: self._first_seen_s.get(job_id, self._clock.monotonic())
            for job_id in self._records
        }
        self._views = {job_id: self._view(by_node) for job_id, by_node in self._records.items()}

    def _view(self, by_node: dict[NodeId, JobRecord]) -> JobView:
        newest = max(by_node.values(), key=lambda record: record.attempt.number)
        absent = self._absent(newest, by_node)
        return roll_up(
            (
                self._as_known(node_id, record)
                for node_id, record in by_node.items()
                if node_id not in absent
            ),
            absent,
        )

    def _absent(self, newest: JobRecord, by_node: Mapping[NodeId, JobRecord]) -> set[NodeId]:
        """Participants that have lost their record of a job, if its start is over everywhere."""
        found = {
            place.node_id
            for place in newest.attempt.placements
            if self._has_lost(place, by_node.get(place.node_id))
        } - {newest.part.node_id}
        if not found or self._is_started(newest):
            return found
        self._is_to_settle = True
        return set()

    def _has_lost(self, place: Placement, record: JobRecord | None) -> bool:
        if place.node_id in self._reachable:
            return record is None and place.node_id in self._told
        # A node that has joined anew with an empty state directory has another id.
        is_replaced = any(
            name == place.node and not addresses.isdisjoint(place.agent)
            for name, addresses in self._reachable.values()
        )
        return is_replaced and (record is None or record.part.state not in TERMINAL)

    def _is_started(self, newest: JobRecord) -> bool:
        """Whether no start of this attempt can be on its way, by either clock."""
        now_s = self._clock.monotonic()
        seen_s = now_s - self._first_seen_s.setdefault(newest.job_id, now_s)
        age_s = self._clock.time() - newest.attempt.submitted_s
        return max(seen_s, age_s) > START_PATIENCE_S

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
