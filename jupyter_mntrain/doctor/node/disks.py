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

FULL: Final = ("ENOSPC", "EDQUOT")

WRITTEN: Final[tuple[PathUse, ...]] = ("jobs", "checkpoints", "temporary files", "output")
"""What a job does with the paths that it writes to."""


class WritablePaths(NodeCheck):
    id = "writable-paths"
    title = "Paths writable"
    looks_at = "folders for jobs, checkpoints, output and temporary files, as the agent's user"

    def look(self, node: Examined, facts: MachineFacts) -> Finding:
        for one in _written(facts):
            if not one.is_writable or one.kind == "unreadable":
                if one.is_read_only:
                    return self._read_only(node, one)
                cause = f"{facts.user} may not write to {one.path}, which is for {one.use}"
                fix = f"on {node.name}: sudo chown {facts.user} {one.path}"
                if one.kind == "missing":
                    fix = f"on {node.name}: sudo install -d -o {facts.user} {one.path}"
                return self.stops(node, one.path, Kind.NO_PERMISSION, cause=cause, fix=fix)
        return self.passed(node, "yes")

    def _read_only(self, node: Examined, one: FoundPath) -> Finding:
        return self.stops(
            node,
            one.path,
            Kind.READ_ONLY,
            cause=f"the file system of {one.path}, which is for {one.use}, is mounted read-only",
            fix=f"on {node.name}: sudo mount -o remount,rw the file system that findmnt -T "
            f"{one.path} names (dmesg says whether an error made it so); or choose another path",
        )


class DiskSpace(NodeCheck):
    id = "disk-space"
    title = "Free disk"
    looks_at = (
        "free space for jobs, checkpoints, output and temporary files, and whether a quota, or a "
        "file system without room for more files, refuses a write"
    )

    def look(self, node: Examined, facts: MachineFacts) -> Finding | None:
        refused = next((one for one in _written(facts) if one.refused in FULL), None)
        if refused is not None:
            return self._refused(node, refused)
        known = [one for one in _written(facts) if one.free_bytes is not None]
        if not known:
            return None
        least = min(known, key=lambda one: one.free_bytes or 0)
        free = least.free_bytes or 0
        said = rough_size(free)
        if free >= USUAL_BYTES:
            return self.passed(node, said)
        # How much a script writes is not known.
        is_too_little = free < LEAST_BYTES and least.use != "output"
        return (self.stops if is_too_little else self.slows)(
            node,
            said,
            Kind.DISK_FULL,
            cause=f"{said} are free at {least.path}, which is for {least.use}",
            fix=f"on {node.name}: du -xh {least.path} | sort -h | tail; delete old runs with "
            "mntrain rm JOB --checkpoints, or put checkpoints on a larger disk",
        )

    def _refused(self, node: Examined, one: FoundPath) -> Finding:
        said, fix = rough_size(one.free_bytes or 0), f"du -xh {one.path} | sort -h | tail"
        cause = f"nothing more can be written to {one.path}, which is for {one.use}"
        if one.refused == "EDQUOT":
            said, fix = "quota", "quota -s"
            cause += ": the quota of its user is used up"
        elif one.free_files == 0:
            said, fix = "no inodes", f"du -x --inodes {one.path} | sort -n | tail"
            cause += ": its file system has no inodes left for more files"
        fix = f"on {node.name}: {fix}; delete what is not needed, or choose another path"
        return self.stops(node, said, Kind.DISK_FULL, cause=cause, fix=fix)


def _written(facts: MachineFacts) -> list[FoundPath]:
    return [one for one in facts.paths if one.use in WRITTEN]
