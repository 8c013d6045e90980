"""Check of the largest packets that come through: jumbo frames over a switch that drops them."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.doctor.check import Case, Examined
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.doctor.pair.owners import interface_at
from jupyter_mntrain.doctor.pair.pair_check import PairCheck
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.paths import PathTrial

USUAL_MTU = 1500


class PathMtu(PairCheck):
    """That one end has a larger MTU than the other does not matter: TCP agrees on the smaller one.
    Nor does a smaller one on the way if TCP finds it out.
    """

    id = "path-mtu"
    title = "MTU of the path"
    looks_at = (
        "the largest packet that comes through undivided, beside the MTU of both ends, and whether "
        "many bytes over a connection arrive"
    )

    def concerns(self, case: Case, trial: PathTrial) -> bool:
        if trial.flow == "stuck":  # of an end that hangs, the largest packets are still answered
            is_cut = (trial.path_mtu or 0) < _least_mtu(case, trial)
            return is_cut or trial.are_large_lost  # a firewall may drop them of TCP alone
        return trial.flow == "works"

    def look(self, case: Case, node: Examined, trial: PathTrial) -> Finding | None:
        if trial.flow == "works":
            return None
        both = _least_mtu(case, trial)
        passes = trial.path_mtu if trial.path_mtu != both else None
        largest = f"packets of more than {passes:,} bytes" if passes else "large packets"
        said = f"{passes:,} of {both:,} to {trial.peer}" if passes else f"stuck to {trial.peer}"
        return self.stops(
            node,
            said,
            Kind.MTU_TOO_LARGE,
            cause=f"{largest} do not arrive at {trial.peer} over {trial.interface}, whose MTU is "
            f"{both:,}, though small ones do: a job starts, and hangs at its first large message",
            fix=f"on {node.name} and {trial.peer}: sudo ip link set {trial.interface} mtu "
            f"{_round(passes)}; or set the switch between them to {both:,} bytes",
            peer=trial.peer,
        )

    def well(self, trials: Sequence[PathTrial]) -> str:
        known = [one.path_mtu for one in trials if one.path_mtu]
        return f"{min(known):,} bytes" if known else "large packets arrive"


def _least_mtu(case: Case, trial: PathTrial) -> int:
    """The smaller one of both ends."""
    ends = (
        interface_at(case.named(trial.node), trial.source),
        interface_at(case.named(trial.peer), trial.address),
    )
    return min((one.mtu for one in ends if one and one.mtu), default=USUAL_MTU)


def _round(passes: int | None) -> int:
    """The MTU to set: the usual one if it passes."""
    return passes if passes and passes < USUAL_MTU else USUAL_MTU
