"""Check of the paths that a job reads, which each node has a copy of or mounts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from jupyter_mntrain.doctor.check import Case, Check, CheckedNode, Finding, Remedy
from jupyter_mntrain.launch.files.names import is_large_name
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.machine import FoundPath, PathUse
from jupyter_mntrain.model.text.foreign import shown_line

READ: Final[tuple[PathUse, ...]] = (
    *("working directory", "script", "model", "data", "chat template"),
)
"""What a job does with the paths that it reads."""


class JobPaths(Check):
    id = "job-paths"
    title = "Job's files"
    looks_at = (
        "of a job: its model, data, chat template, working directory and script, which it reads "
        "there"
    )

    def findings(self, case: Case) -> Iterable[Finding]:
        for node in case.nodes:
            read = [one for one in node.facts.paths if one.use in READ] if node.facts else []
            lost = [one for one in read if one.kind in ("missing", "unreadable")]
            yield from (self._judged(case, node, one) for one in lost)
            if read and not lost:
                yield self.passed(node, "there")

    def _judged(self, case: Case, node: CheckedNode, lost: FoundPath) -> Finding:
        path = shown_line(lost.path)
        if lost.trouble is not None:
            return self.found("stops", node, lost.use, lost.trouble)
        if lost.kind == "unreadable":
            user = node.facts.user if node.facts else "its user"
            return self.stops(
                node,
                lost.use,
                Kind.NO_PERMISSION,
                cause=f"{user} may not read {path}, the {lost.use} of the job",
                fix=f"on {node.name}: sudo setfacl -R -m u:{user}:rX {path}",
            )
        has = next((one for one in case.nodes if _has(one, lost)), None)
        there = f", and is on {has.name}{_shown_target(has, lost)}" if has else " on any node"
        remedy = None
        fix = "correct the path: it is one on the nodes"
        if has is not None:
            fix = f"copy it to {node.name}, or mount it there, or correct the path"
        if has is not None and is_large_name(_asked(lost)) and lost.use in ("model", "data"):
            remedy = Remedy(push=_asked(lost), source=has.name, node=node.name)
            fix = f"mntrain {remedy.command}, or the doctor's --apply"
        cause = f"{path}, the {lost.use} of the job, does not exist{there}"
        return msgspec.structs.replace(
            self.stops(node, lost.use, Kind.NO_FILE, cause=cause, fix=fix), remedy=remedy
        )


def _asked(one: FoundPath) -> str:
    """Return the path as it was asked for; older agents do not repeat it."""
    return one.asked or one.path


def _found(node: CheckedNode, like: FoundPath) -> FoundPath | None:
    paths = node.facts.paths if node.facts else ()
    return next((one for one in paths if (one.use, _asked(one)) == (like.use, _asked(like))), None)


def _has(node: CheckedNode, like: FoundPath) -> bool:
    found = _found(node, like)
    return found is not None and found.kind in ("folder", "file")


def _shown_target(node: CheckedNode, like: FoundPath) -> str:
    """Describe the target of a symbolic link, since that may be what is missing."""
    found = _found(node, like)
    if found is None or found.real_path in ("", found.path):
        return ""
    return f" a link to {shown_line(found.real_path)}"
