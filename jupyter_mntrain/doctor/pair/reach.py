"""Checks of what a node can connect to: random ports, the rendezvous', the kernel's range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from jupyter_mntrain.doctor.check import Case, Examined
from jupyter_mntrain.doctor.finding import Finding, Level
from jupyter_mntrain.doctor.pair.firewalls import blocked
from jupyter_mntrain.doctor.pair.pair_check import PairCheck
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.paths import PathTrial, PortTry


class ReachablePeers(PairCheck):
    id = "reachable"
    title = "Reaches the others"
    looks_at = (
        "whether each node can connect to each other one on a random high port, from address to "
        "address as a job would, and which side's firewall prevents it"
    )

    def findings(self, case: Case) -> Iterable[Finding]:
        yield from super().findings(case)
        for node in case.nodes:
            if node.facts is not None and (why := case.paths.failed.get(node.name)):
                yield self.unknown(node, why)

    def look(self, case: Case, node: Examined, trial: PathTrial) -> Finding | None:
        if trial.trouble is None:
            return None
        said = f"not to {trial.peer}"
        if trial.trouble == "no source":
            return self.stops(
                node,
                said,
                Kind.NO_INTERFACE,
                cause=f"{trial.interface} has lost its address {trial.source}",
                fix=f"on {node.name}: ip addr show {trial.interface}; give it a fixed address",
                peer=trial.peer,
            )
        open_ports = [one.port for one in trial.tries[1:] if one.trouble is None]
        ports = "high ports"
        if open_ports:
            ports += f" (only {', '.join(map(str, open_ports))} of those tried is open)"
        return self.closed(case, node, trial, said, blocked(case.paths, trial, ports))

    def well(self, trials: Sequence[PathTrial]) -> str:
        known = [one.round_trip_s for one in trials if one.round_trip_s is not None]
        return f"in {max(known) * 1000:.1f} ms" if known else "connects"


class RendezvousPort(PairCheck):
    """Of a way whose random port is open. Of a job, its own is tried, on its head."""

    id = "rendezvous-port"
    title = "Rendezvous port"
    is_for_launch = False
    looks_at = "the ports 29400 and 29500, or a job's own: for launches with --port, and scripts"

    def concerns(self, case: Case, trial: PathTrial) -> bool:
        if trial.trouble is not None or (case.job and trial.peer != case.job.head):
            return False
        return bool(_tries(case, trial, is_in_range=False))

    def look(self, case: Case, node: Examined, trial: PathTrial) -> Finding | None:
        closed = _closed(_tries(case, trial, is_in_range=False))
        if not closed:
            return None
        found = blocked(case.paths, trial, f"port {' and '.join(map(str, closed))}")
        fix = f"launch without --port, which takes a free one; or {found.fix}"
        problem = msgspec.structs.replace(found, kind=Kind.PORT_BLOCKED, fix=fix)
        level: Level = "stops" if case.job else "slows"
        return self.found(level, node, f"not to {trial.peer}", problem, peer=trial.peer)

    def well(self, trials: Sequence[PathTrial]) -> str:
        return f"open to {len(trials)}"


class PortRange(PairCheck):
    """Of a way whose random port is open: by luck, if the firewall opens a part of the range."""

    id = "port-range"
    title = "Port range"
    looks_at = (
        "ports near the ends and in the middle of the range that the kernel chooses from: Gloo, "
        "NCCL and torchrun listen anywhere in it"
    )

    def concerns(self, case: Case, trial: PathTrial) -> bool:
        return trial.trouble is None and bool(_tries(case, trial, is_in_range=True))

    def look(self, case: Case, node: Examined, trial: PathTrial) -> Finding | None:
        closed = _closed(_tries(case, trial, is_in_range=True))
        if not closed:
            return None
        first, last = case.paths.ranges[trial.peer]
        found = blocked(case.paths, trial, f"port {' and '.join(map(str, closed))}")
        problem = msgspec.structs.replace(
            found,
            kind=Kind.PORT_BLOCKED,
            cause=f"{found.cause}; a job's ports are anywhere in {first} to {last}, so that it "
            "works by luck",
            fix=f"{found.fix}; or on {trial.peer}, to use only the ports that are open: sudo "
            'sysctl net.ipv4.ip_local_port_range="FIRST LAST"',
        )
        return self.closed(case, node, trial, f"not all to {trial.peer}", problem)

    def well(self, trials: Sequence[PathTrial]) -> str:
        return f"open to {len(trials)}"


def _tries(case: Case, trial: PathTrial, *, is_in_range: bool) -> list[PortTry]:
    """Those of the kernel's range, or the others."""
    first, last = case.paths.ranges.get(trial.peer, (0, 0))
    return [one for one in trial.tries[1:] if (first <= one.port <= last) is is_in_range]


def _closed(tries: Sequence[PortTry]) -> list[int]:
    return [one.port for one in tries if one.trouble is not None]
