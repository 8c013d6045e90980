"""Check of processor cores against ranks."""

from __future__ import annotations

from jupyter_mntrain.doctor.check import Examined, NodeCheck
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import agreeing
from jupyter_mntrain.model.records.doctor.machine import MachineFacts


class CoresForRanks(NodeCheck):
    id = "cores"
    title = "Cores"
    looks_at = "processor cores that a node may use, beside its ranks: those of a job, or its GPUs"
    is_for_launch = False

    def look(self, node: Examined, facts: MachineFacts) -> Finding:
        gpus = node.info.inventory.gpus
        ranks = node.participant.nproc if node.participant is not None else max(1, len(gpus))
        cores = facts.processors.cores
        said = f"{cores:g} for {ranks} rank{agreeing(range(ranks), '', 's')}"
        # A quota of control groups may be a little less than a core.
        if round(cores) >= ranks or ranks == 1:
            return self.passed(node, said)
        return self.slows(
            node,
            said,
            Kind.SLOW_RANK,
            cause=f"{ranks} ranks share {cores:g} cores: each needs one even to keep a GPU busy",
            fix=f"use fewer ranks on {node.name}, or allow more cores: docker run --cpus, "
            "CPUQuota= of the agent's service, or --cpus-per-task of SLURM",
        )
