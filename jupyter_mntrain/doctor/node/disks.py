"""Checks of disks: the paths that a job writes to, and the room there."""

from __future__ import annotations

from typing import Final

from jupyter_mntrain.doctor.check import Examined, NodeCheck
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import rough_size
from jupyter_mntrain.model.records.doctor.machine import FoundPath, MachineFacts, PathUse

LEAST_BYTES = tunables.size("doctor.least_free_disk_bytes")
USUAL_BYTES = tunables.size("doctor.usual_free_disk_bytes")

WRITTEN: Final[tuple[PathUse, ...]] = ("jobs", "checkpoints", "temporary files", "output")
"""What a job does with the paths that it writes to."""


class WritablePaths(NodeCheck):
    id = "writable-paths"
    title = "Paths writable"
    looks_at = "folders for jobs, checkpoints, output and temporary files, as the agent's user"

    def look(self, node: Examined, facts: MachineFacts) -> Finding:
        for one in _written(facts):
            if not one.is_writable or one.kind == "unreadable":
                cause = f"{facts.user} may not write to {one.path}, which is for {one.use}"
                fix = f"on {node.name}: sudo chown {facts.user} {one.path}"
                if one.kind == "missing":
                    fix = f"on {node.name}: sudo install -d -o {facts.user} {one.path}"
                return self.stops(node, one.path, Kind.NO_PERMISSION, cause=cause, fix=fix)
        return self.passed(node, "yes")


class DiskSpace(NodeCheck):
    id = "disk-space"
    title = "Free disk"
    looks_at = "free space for jobs, checkpoints, output and temporary files"

    def look(self, node: Examined, facts: MachineFacts) -> Finding | None:
        known = [one for one in _written(facts) if one.free_bytes is not None]
        if not known:
            return None
        least = min(known, key=lambda one: one.free_bytes or 0)
        free = least.free_bytes or 0
        said = rough_size(free)
        if free >= USUAL_BYTES:
            return self.passed(node, said)
        return (self.stops if free < LEAST_BYTES else self.slows)(
            node,
            said,
            Kind.DISK_FULL,
            cause=f"{said} are free at {least.path}, which is for {least.use}",
            fix=f"on {node.name}: du -xh {least.path} | sort -h | tail; delete old runs with "
            "mntrain rm JOB --checkpoints, or put checkpoints on a larger disk",
        )


def _written(facts: MachineFacts) -> list[FoundPath]:
    return [one for one in facts.paths if one.use in WRITTEN]
