"""Check of the agents' users, where nodes share a file system."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from jupyter_mntrain.doctor.check import Case, Check, Examined
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.machine import MachineFacts

SHARED: Final = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "glusterfs",
    "fuse.sshfs",
)
"""Beginnings of the types of file systems that several machines mount."""


class SharedAccount(Check):
    id = "user-id"
    title = "User id"
    looks_at = "the agents' user and group ids, where nodes share a file system"
    is_for_launch = False

    def findings(self, case: Case) -> Iterable[Finding]:
        by_path: dict[str, list[tuple[Examined, MachineFacts]]] = defaultdict(list)
        for node in case.nodes:
            if node.facts is not None:
                for path in {one.path for one in node.facts.paths if _is_shared(one.file_system)}:
                    by_path[path].append((node, node.facts))
        said: set[str] = set()
        for path, sharers in by_path.items():
            first = sharers[0][1]
            for node, facts in sharers:
                if node.name in said:
                    continue
                said.add(node.name)
                yield self._judged(node, facts, sharers[0][0], first, path)

    def _judged(
        self, node: Examined, facts: MachineFacts, other: Examined, first: MachineFacts, path: str
    ) -> Finding:
        own = f"{facts.uid}:{facts.gid}"
        if facts.uid == first.uid:
            return self.passed(node, own)
        return self.slows(
            node,
            own,
            Kind.NO_PERMISSION,
            cause=f"its agent's user has the id {own}, that of {other.name} "
            f"{first.uid}:{first.gid}: in {path}, which they share, neither may change the other's "
            "files",
            fix=f"run both agents as users with one id, or on {node.name}: sudo usermod -u "
            f"{first.uid} {facts.user}",
        )


def _is_shared(file_system: str) -> bool:
    return file_system.startswith(SHARED)
