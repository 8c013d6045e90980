"""Check of the kernel's routes: over which interface packets leave, whatever a job was told."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.doctor.check import Case, Examined
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.doctor.pair.pair_check import PairCheck
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.paths import PathTrial


class RouteToPeers(PairCheck):
    """Gloo and NCCL choose addresses by the interface; the kernel chooses the way by addresses."""

    id = "route"
    title = "Routes"
    looks_at = "whether packets to the others leave over the interface that a job uses"

    def concerns(self, case: Case, trial: PathTrial) -> bool:
        node = case.named(trial.node)
        cards = node.info.inventory.interfaces if node else ()
        # An address of loopback may be the source of packets that leave over any card.
        return any(one.name == trial.leaves_by and one.kind != "loopback" for one in cards)

    def look(self, case: Case, node: Examined, trial: PathTrial) -> Finding | None:  # noqa: ARG002
        if trial.leaves_by == trial.interface:
            return None
        return self.slows(
            node,
            f"over {trial.leaves_by}",
            Kind.NO_ROUTE,
            cause=f"packets to {trial.peer} ({trial.address}) leave over {trial.leaves_by}, not "
            f"over {trial.interface}, which a job would use: answers take another way, and the run "
            "is as fast as the wrong network",
            fix=f"on {node.name}: ip route get {trial.address} shows the way; correct it with sudo "
            f"ip route replace {trial.address}/32 dev {trial.interface}, or give the two "
            "interfaces different networks",
            peer=trial.peer,
        )

    def well(self, trials: Sequence[PathTrial]) -> str:
        return ", ".join(dict.fromkeys(one.leaves_by for one in trials))
