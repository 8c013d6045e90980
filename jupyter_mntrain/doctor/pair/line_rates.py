"""Checks of what a link carries: packets lost, and measured rates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from jupyter_mntrain.doctor.check import Case, Check, Examined
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.doctor.pair.owners import interface_at
from jupyter_mntrain.doctor.pair.pair_check import PairCheck
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.paths import PathTrial, Resent
from jupyter_mntrain.model.records.node import Interface, LinkMeasurement
from jupyter_mntrain.plan.networks.outdated import known_links

MOST_RESENT_SHARE = tunables.ratio("doctor.most_resent_share")
LEAST_RESENT = tunables.count("doctor.least_resent")
LEAST_SPEED_SHARE = tunables.ratio("doctor.least_speed_share")
LEAST_REVERSE_SHARE = tunables.ratio("doctor.least_reverse_share")
MOST_FILLED = tunables.count("doctor.most_filled_mbit_per_s")

MBIT: Final = 1e6 / 8


class ResentPackets(PairCheck):
    id = "resent-packets"
    title = "Lost packets"
    looks_at = "packets that had to be sent again in a short transfer to each other node"

    def concerns(self, case: Case, trial: PathTrial) -> bool:  # noqa: ARG002
        return trial.flow == "lossy" or (trial.load is not None and trial.load.packets > 0)

    def look(self, case: Case, node: Examined, trial: PathTrial) -> Finding | None:  # noqa: ARG002
        lost, said = "even small packets", f"lost to {trial.peer}"
        if trial.load is not None:
            if not is_lossy(trial.load):
                return None
            share = f"{trial.load.again / trial.load.packets:.1%}"
            lost, said = f"{share} of the packets", f"{share} to {trial.peer}"
        return self.slows(
            node,
            said,
            Kind.LINK_SLOW,
            cause=f"{lost} to {trial.peer} over {trial.interface} are lost, and sent again",
            fix=fix_of(Kind.LINK_SLOW, "resent"),
            peer=trial.peer,
        )

    def well(self, trials: Sequence[PathTrial]) -> str:
        packets = sum(one.load.packets for one in trials if one.load)
        again = sum(one.load.again for one in trials if one.load)
        return f"{again} of {packets:,}"


class MeasuredLinks(Check):
    """Of what was measured while nothing disturbed it; a speed that is not known says nothing."""

    id = "measured-link"
    title = "Measured links"
    looks_at = (
        "what a link was measured to carry, beside the speed of its cards and its other direction"
    )
    is_for_launch = False  # a launch says by itself which links slow it down

    def findings(self, case: Case) -> Iterable[Finding]:
        for node in case.nodes:
            if node.facts is None:
                continue
            bad = False
            judged = []
            for interface in node.info.inventory.interfaces:
                for link in filter(_is_undisturbed, known_links(interface.links)):
                    judged.append(link)
                    found = self._look(case, node, interface, link)
                    if found is not None:
                        bad = True
                        yield found
            if judged and not bad:
                yield self.passed(node, _rate(min(_carried(one) for one in judged)))

    def _look(
        self, case: Case, node: Examined, interface: Interface, link: LinkMeasurement
    ) -> Finding | None:
        other = interface_at(case.named(link.receiver), link.address)
        carried = _carried(link)
        nominal = _nominal(interface, other)
        back = next(
            (
                _carried(one)
                for one in known_links(other.links if other else ())
                if one.receiver == node.name and _is_undisturbed(one)
            ),
            None,
        )
        if nominal and carried < LEAST_SPEED_SHARE * nominal:
            beside = f"its cards' speed is {_rate(nominal)}"
        elif back and carried < LEAST_REVERSE_SHARE * back:
            beside = f"the other direction carries {_rate(back)}"
        else:
            return None
        return self.slows(
            node,
            f"{_rate(carried)} to {link.receiver}",
            Kind.LINK_SLOW,
            cause=f"{interface.name} was measured to carry {_rate(carried)} to {link.receiver}, "
            f"and {beside}",
            fix=fix_of(Kind.LINK_SLOW),
            peer=link.receiver,
        )


def is_lossy(load: Resent) -> bool:
    """Whether it lost so many packets that TCP is slow, more than a good cable ever does."""
    return load.again >= max(LEAST_RESENT, MOST_RESENT_SHARE * load.packets)


def _nominal(own: Interface, other: Interface | None) -> float | None:
    """The slower card's speed, if one connection can fill it, and its speed means something."""
    if other is None or own.kind != "ethernet" or other.kind != "ethernet":
        return None
    speeds = (own.speed_mbit_per_s or 0, other.speed_mbit_per_s or 0)
    return min(speeds) if 0 < min(speeds) <= MOST_FILLED else None


def _is_undisturbed(link: LinkMeasurement) -> bool:
    return link.capacity.source == "measured" and link.capacity.condition == "alone"


def _carried(link: LinkMeasurement) -> float:
    """Mbit/s."""
    return link.capacity.bytes_per_s / MBIT


def _rate(mbit_per_s: float) -> str:
    if mbit_per_s >= 1000:
        return f"{mbit_per_s / 1000:.3g} Gbit/s"
    return f"{mbit_per_s:.3g} Mbit/s"
