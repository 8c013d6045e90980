"""Check of the clocks: logs are compared by them, and certificates expire by them."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from jupyter_mntrain.doctor.check import Case, Check, Examined
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.kinds import Kind

MOST_S = tunables.seconds("doctor.most_clock_difference_s")


class ClockCheck(Check):
    id = "clock"
    title = "Clock"
    looks_at = "each node's clock beside the others', and beside the driver's if there are two"

    def findings(self, case: Case) -> Iterable[Finding]:
        known = [node for node in case.nodes if node.facts is not None]
        yield from (
            self.unknown(node, "its agent did not tell") for node in case.nodes if not node.facts
        )
        usual = median([node.clock_ahead_s for node in known]) if len(known) > 2 else 0.0
        yield from (self._judged(node, node.clock_ahead_s - usual) for node in known)

    def _judged(self, node: Examined, ahead_s: float) -> Finding:
        word = "ahead" if ahead_s > 0 else "behind"
        said = f"{abs(ahead_s):.1f} s {word}"
        if abs(ahead_s) - node.clock_error_s <= MOST_S:
            return self.passed(node, "agrees")
        return self.slows(
            node,
            said,
            Kind.CLOCK_OFF,
            cause=f"its clock is {said}",
            fix=f"on {node.name}: sudo timedatectl set-ntp true",
        )
