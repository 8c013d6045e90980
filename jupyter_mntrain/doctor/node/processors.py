"""Checks of processors, and of the process that reaps others in a container."""

from __future__ import annotations

from typing import Final

from jupyter_mntrain.doctor.check import Examined, NodeCheck
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.machine import MachineFacts
from jupyter_mntrain.model.text.foreign import shown_name

NO_REAPERS: Final = ("sleep", "tail", "cat", "python", "node", "java", "jupyter")
"""Beginnings of the names of first processes that reap only what they started themselves."""

MOST_ZOMBIES: Final = 20
"""That were just not reaped yet."""

SLOW: Final = frozenset({"powersave", "conservative"})
OWN_CHOICE: Final = frozenset({"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"})
"""Drivers under which ``powersave`` follows the load."""


class Governor(NodeCheck):
    id = "cpu-governor"
    title = "CPU governor"
    looks_at = "how the kernel chooses the processors' frequency"
    is_for_launch = False

    def look(self, node: Examined, facts: MachineFacts) -> Finding | None:
        processors = facts.processors
        if not processors.governors:
            return None
        said = ", ".join(map(shown_name, processors.governors))
        slow = SLOW.intersection(processors.governors)
        if not slow or processors.driver in OWN_CHOICE:
            return self.passed(node, said)
        return self.slows(
            node,
            said,
            Kind.SLOW_RANK,
            cause=f"its CPU governor is {', '.join(sorted(slow))}, which keeps the frequency low",
            fix=f"on {node.name}: sudo cpupower frequency-set -g performance",
        )


class FirstProcess(NodeCheck):
    id = "first-process"
    title = "PID 1"
    looks_at = "in a container, whether its first process reaps others"
    is_for_launch = False

    def look(self, node: Examined, facts: MachineFacts) -> Finding | None:
        if not facts.container:
            return None
        name = facts.first_process
        is_known = name.startswith(NO_REAPERS)
        if not is_known and facts.zombies <= MOST_ZOMBIES:
            return self.passed(node, shown_name(name or "unknown"))
        left = f": {facts.zombies} are left" if facts.zombies else ""
        return self.slows(
            node,
            shown_name(name),
            Kind.TOO_MANY_PROCESSES,
            cause=f"its container's first process is {name}, which does not reap ended processes "
            f"of others{left}",
            fix="start the container with --init",
        )
