"""Check of versions that have to agree between nodes, as a launch compares them."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_mntrain.doctor.check import Case, Check
from jupyter_mntrain.doctor.finding import Finding, Level
from jupyter_mntrain.plan.software.versions import ABSENT, divergences, version_problem


class AgreeingVersions(Check):
    """Not of a job's participants: a launch and the panel compare those of its own interpreter."""

    id = "versions"
    title = "Versions"
    looks_at = (
        "mntrain, torch, transformers, CUDA, NCCL, Python, architecture and GPU driver, beside the "
        "other nodes'"
    )
    is_for_launch = False

    def findings(self, case: Case) -> Iterable[Finding]:
        nodes = [node for node in case.nodes if node.facts is not None]
        if len(nodes) < 2 or any(node.participant is not None for node in nodes):
            return
        # Those that stop a launch first.
        different = sorted(
            divergences([node.info for node in nodes]), key=lambda one: one.is_harmless
        )
        for node in nodes:
            own = next((one for one in different if one.node == node.name), None)
            if own is None:
                yield self.passed(node, "agree")
            elif own.key == "driver":  # no job minds
                yield self.passed(node, f"driver {own.value or ABSENT}")
            else:
                said = f"{own.key} {own.value or ABSENT}"
                level: Level = "slows" if own.is_harmless else "stops"
                yield self.found(level, node, said, version_problem(own))
