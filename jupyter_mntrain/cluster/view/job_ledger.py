"""Job ledger: stores the agents' reports about jobs, rolled up per job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.lifecycle.rollup import START_PATIENCE_S, roll_up, unknown_part
from jupyter_mntrain.model.lifecycle.state import UNDER_WAY
from jupyter_mntrain.model.records.job import TERMINAL, JobRecord, JobView, Placement
from jupyter_mntrain.model.records.node import NodeInfo

Missing = tuple[JobId, NodeId]
"""A record that a node may have."""

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
        self._doubtful: set[Missing] = set()
        """Records that may have changed while nobody listened: the node must be asked."""
        self._lacking: set[Missing] = set()
        """Records that a node said it does not have."""
        self._deleted: set[Missing] = set()
        """Records that a node said it has deleted: a page read before may still bring them."""
        self._taken: Mapping[str, Problem] = {}
        """Nodes that a scheduler has taken back, by name, each with why."""
        self._missing: dict[JobId, tuple[NodeId, ...]] = {}
        self._final: set[JobId] = set()
        """Jobs that have ended everywhere: who is reachable changes nothing about them."""
        self._first_seen_s: dict[JobId, float] = {}
        self.needs_update = False
        """Whether a record is missing that may still arrive."""
        self._views: dict[JobId, JobView] = {}

    def begin(self, node_id: NodeId, live: Iterable[JobRecord]) -> None:
        """Store a node's jobs that have not ended, when its stream starts.

        What it has else is asked for: see :attr:`missing`.
        """
        self._lacking = {one for one in self._lacking if one[1] != node_id}
        self._doubtful = {one for one in self._doubtful if one[1] != node_id}
        self._deleted = {one for one in self._deleted if one[1] != node_id}
        records = {record.job_id: record for record in live}
        for job_id, by_node in self._records.items():
            known = by_node.get(node_id)
            if known is not None and job_id not in records and _may_change(known):
                self._doubt(job_id, node_id)
        for job_id, record in records.items():
            self._records.setdefault(job_id, {})[node_id] = record
            self._final.discard(job_id)
        self._rebuild()

    def confirm(self, node_id: NodeId, newest: Sequence[JobRecord], *, is_all: bool) -> None:
        """Store a node's newest ended jobs; ask again for others as new that it had before.

        Args:
            is_all: it has no older ones.
        """
        listed = {record.job_id for record in newest}
        oldest_s = min((record.attempt.submitted_s for record in newest), default=0.0)
        since_s = 0.0 if is_all else oldest_s
        for job_id, by_node in self._records.items():
            known = by_node.get(node_id)
            is_recent = known is not None and known.attempt.submitted_s > since_s
            if known is not None and is_recent and not known.is_live and job_id not in listed:
                self._doubt(job_id, node_id)
        self.take(newest)

    def take(self, records: Iterable[JobRecord]) -> None:
        """Store records, except where newer ones are known."""
        for record in records:
            self._store(record)
        self._rebuild()

    def delete(self, job_id: JobId, node_id: NodeId) -> None:
        """Note that a node has deleted its record of a job; late replies do not bring it back."""
        self._deleted.add((job_id, node_id))
        self.lacks(job_id, node_id)

    def lacks(self, job_id: JobId, node_id: NodeId) -> None:
        """Note that a node has no record of a job."""
        by_node = self._records.get(job_id, {})
        by_node.pop(node_id, None)
        self._doubtful.discard((job_id, node_id))
        self._final.discard(job_id)
        if by_node:
            self._lacking.add((job_id, node_id))
            self._views[job_id] = self._view(by_node)
            return
        self._lacking = {one for one in self._lacking if one[0] != job_id}
        for known in (self._records, self._views, self._missing):
            known.pop(job_id, None)

    @property
    def missing(self) -> list[Missing]:
        """Return the records that nodes which answer have to be asked for."""
        return [(job_id, node) for job_id, nodes in self._missing.items() for node in nodes]

    def update(self, record: JobRecord) -> bool:
        """Store a record; ``False`` if a newer one is known or it is deleted, as after a late
        reply.
        """
        is_news = self._store(record)
        if by_node := self._records.get(record.job_id):
            self._views[record.job_id] = self._view(by_node)
        return is_news

    def set_reachable(self, nodes: Iterable[NodeInfo]) -> bool:
        """Set which nodes answer; ``True`` if a job's view may have changed. Parts of other nodes
        are unknown. Call often: a missing record counts as lost after a while.
        """
        reachable = {node.node_id: (node.name, frozenset(node.addresses)) for node in nodes}
        if reachable == self._reachable and not self.needs_update:
            return False
        self._reachable = reachable
        self._rebuild()
        return True

    def take_back(self, nodes: Mapping[str, Problem]) -> None:
        """Set which nodes a scheduler has taken back, by name, and why."""
        self._taken = nodes
        self._rebuild()

    def views(self) -> tuple[JobView, ...]:
        """Return all jobs, newest first."""
        return tuple(sorted(self._views.values(), key=lambda v: (-v.attempt.submitted_s, v.job_id)))

    def _rebuild(self) -> None:
        self.needs_update = False
        self._first_seen_s = {
            job_id: self._first_seen_s.get(job_id, self._clock.monotonic())
            for job_id in self._records
        }
        self._missing = {
            job_id: ids for job_id, ids in self._missing.items() if job_id in self._records
        }
        self._views = {
            job_id: self._views[job_id] if job_id in self._final else self._view(by_node)
            for job_id, by_node in self._records.items()
        }

    def _store(self, record: JobRecord) -> bool:
        job_id, node_id = record.job_id, record.part.node_id
        if (job_id, node_id) in self._deleted:
            return False
        by_node = self._records.setdefault(job_id, {})
        known = by_node.get(node_id)
        self._doubtful.discard((job_id, node_id))
        self._lacking.discard((job_id, node_id))
        if known is not None and _age(record) < _age(known):
            return False
        by_node[node_id] = record
        self._final.discard(job_id)
        return True

    def _doubt(self, job_id: JobId, node_id: NodeId) -> None:
        self._doubtful.add((job_id, node_id))
        self._final.discard(job_id)

    def _view(self, by_node: dict[NodeId, JobRecord]) -> JobView:
        newest = max(by_node.values(), key=lambda record: record.attempt.number)
        absent = self._absent(newest, by_node)
        self._note_missing(newest, by_node)
        return roll_up(
            (
                self._as_known(node_id, record)
                for node_id, record in by_node.items()
                if node_id not in absent
            ),
            absent,
            {
                place.node_id: self._taken[place.node]
                for place in newest.attempt.placements
                if place.node in self._taken and place.node_id not in self._reachable
            },
        )

    def _note_missing(self, newest: JobRecord, by_node: Mapping[NodeId, JobRecord]) -> None:
        job_id, places = newest.job_id, newest.attempt.placements
        unknown = tuple(
            place.node_id
            for place in places
            if place.node_id in self._reachable
            and (job_id, place.node_id) not in self._lacking
            and ((job_id, place.node_id) in self._doubtful or place.node_id not in by_node)
        )
        if unknown and not self._is_started(newest):
            self.needs_update = True
            unknown = tuple(one for one in unknown if (job_id, one) in self._doubtful)
        self._missing[job_id] = unknown
        attempts = {record.attempt.number for record in by_node.values()}
        if (
            not unknown
            and len(attempts) == 1
            and all(place.node_id in by_node for place in places)
            and not any(_may_change(record) for record in by_node.values())
        ):
            self._final.add(job_id)

    def _absent(self, newest: JobRecord, by_node: Mapping[NodeId, JobRecord]) -> set[NodeId]:
        """Return the participants that have lost their record of a job, once its start is over."""
        found = {
            place.node_id
            for place in newest.attempt.placements
            if self._has_lost(newest.job_id, place, by_node.get(place.node_id))
        } - {newest.part.node_id}
        if not found or self._is_started(newest):
            return found
        self.needs_update = True
        return set()

    def _has_lost(self, job_id: JobId, place: Placement, record: JobRecord | None) -> bool:
        if place.node_id in self._reachable:
            return record is None and (job_id, place.node_id) in self._lacking
        # A node that has joined again with an empty state directory has another id.
        is_replaced = any(
            name == place.node and not addresses.isdisjoint(place.agent)
            for name, addresses in self._reachable.values()
        )
        return is_replaced and (record is None or record.part.state not in TERMINAL)

    def _is_started(self, newest: JobRecord) -> bool:
        """Whether no start request of this attempt can still arrive, by either clock."""
        now_s = self._clock.monotonic()
        seen_s = now_s - self._first_seen_s.setdefault(newest.job_id, now_s)
        age_s = self._clock.time() - newest.attempt.submitted_s
        return max(seen_s, age_s) > START_PATIENCE_S

    def _as_known(self, node_id: NodeId, record: JobRecord) -> JobRecord:
        """Return the record, with an unknown part if that had not ended and its node is silent."""
        is_known = node_id in self._reachable and (record.job_id, node_id) not in self._doubtful
        if is_known or record.part.state in TERMINAL:
            return record
        for placement in record.attempt.placements:
            if placement.node_id == node_id:
                return msgspec.structs.replace(record, part=unknown_part(placement))
        return record


def _may_change(record: JobRecord) -> bool:
    """Whether a later record of this job may differ: it has not ended, or may be restarted."""
    return record.is_live or (record.spec.max_restarts > 0 and not record.is_over)


def _age(record: JobRecord) -> tuple[int, int]:
    state = record.part.state
    return record.attempt.number, (len(UNDER_WAY) if state in TERMINAL else UNDER_WAY.index(state))
