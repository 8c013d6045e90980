"""Version check: rows whose versions differ from the others, or whose torch cannot use the GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.lookup import reference
from jupyter_mntrain.plan.software.gpu_builds import gpu_build_problem
from jupyter_mntrain.plan.software.versions import divergences, version_problem
from jupyter_mntrain.verbs.panel.checks.check import Fix, RowCheck, leave_out
from jupyter_mntrain.verbs.panel.checks.findings import Findings
from jupyter_mntrain.verbs.panel.choices import Choices
from jupyter_mntrain.verbs.panel.node_row import FormRow


def check_versions(
    used: Sequence[FormRow],
    participants: Sequence[Participant],
    choices: Choices,
    usable: Sequence[NodeInfo],
    findings: Findings,
) -> None:
    names = {row.name for row in used}
    infos = [info for info in usable if reference(info, usable) in names]
    by_row = {one.node: one.gpus for one in participants}
    different = divergences(infos)
    for info in infos:
        if info.inventory.versions.torch is None:
            fix = leave_out(choices, reference(info, usable))
            missing = RowCheck(level="error", problem=_no_torch(info), fix=fix)
            findings.put(reference(info, usable), missing)
            continue
        own = [one for one in different if one.node == info.name]
        for one in own:
            # The row names the node.
            problem = msgspec.structs.replace(version_problem(one), node=None)
            check = RowCheck(level="warning", problem=problem)
            if not one.is_harmless and not choices.mixed_versions:
                anyway = msgspec.structs.replace(choices, mixed_versions=True)
                fix = Fix(label="Launch anyway", choices=anyway)
                check = RowCheck(level="error", problem=problem, fix=fix)
            findings.put(reference(info, usable), check)
        unusable = gpu_build_problem(info, by_row.get(reference(info, usable), ()))
        if unusable is not None:
            problem = msgspec.structs.replace(unusable, node=None)
            fix = leave_out(choices, reference(info, usable))
            findings.put(reference(info, usable), RowCheck(level="error", problem=problem, fix=fix))
        if not own and unusable is None:
            findings.passed(reference(info, usable))


def _no_torch(info: NodeInfo) -> Problem:
    where = f" into {info.python}" if info.python else ""
    return Problem(
        kind=Kind.MIXED_VERSIONS,
        cause="torch is not installed",
        fix=f"install the version that the other nodes have{where}, then restart its agent, which "
        "looks when it starts; or name an interpreter that has it: a job's own is asked each time",
    )
