"""Jobs on simulated hosts: links of set speeds, limits of CPU time, and the real trainer."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.schedules import steps_of
from jupyter_mntrain.model.records.node import LinkMeasurement
from jupyter_mntrain.model.records.plan import DeviceMeasurement, DeviceSpeed, LinkSpeed
from jupyter_mntrain.plan.prediction.speeds import speed_of
from tests.netlab import DATA, Host, HostProcess, Lab
from tests.standin.nodes import node

PORT = 29600
PATIENCE_S = 900
CGROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 10_000
"""Short, so that a limited rank is slow and does not stand still for long."""

LOOPBACK_MBIT = 20_000
"""Faster than the simulated links can be."""

Pair = tuple[int, int]

_PROBE = """
import sys, msgspec
from jupyter_mntrain.agent.machine.links.probe import measure, open_sink
from jupyter_mntrain.model.records.probes import ProbeSend
interface, own = sys.argv[1:]
for line in sys.stdin:
    words = line.split()
    if words:
        address, port, token = words
        request = ProbeSend(interface=interface, source_address=own, address=address,
                            port=int(port), token=token, peer=address, seconds=1.0, echoes=True)
        print(msgspec.json.encode(measure(request, own, bool)).decode(), flush=True)
    else:
        ticket = open_sink(own, "sink", bool)
        print(ticket.port, ticket.token, flush=True)
"""


class JobError(RuntimeError):
    """A rank failed; the text is the end of what it printed."""


def shape(lab: Lab, sending_mbit: Sequence[float]) -> None:
    """Limit what each host sends; what it receives is as fast as its peers send."""
    lab.reshape(DATA, "rate 40gbit burst 4mb latency 50ms")
    for host, mbit in zip(lab.hosts, sending_mbit, strict=False):
        # A bucket of 1 ms: what a larger one lets through at once would be a faster link.
        burst = max(16_000, round(mbit * 1e6 / 8 * 1e-3))
        lab.shape_sending(host, DATA, f"rate {mbit}mbit burst {burst} latency 100ms")


class Probes:
    """The product's link probe, on every host; ends with the block.

    Args:
        is_loopback: measure from the first host to itself, as if to the others.
    """

    def __init__(self, hosts: Sequence[Host], *, is_loopback: bool = False) -> None:
        self._hosts = [hosts[0]] * len(hosts) if is_loopback else hosts
        self._interface = "lo" if is_loopback else DATA
        self._stack = contextlib.ExitStack()
        self._running: list[HostProcess] = []

    def __enter__(self) -> Probes:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        for host in self._hosts:
            words = [sys.executable, "-c", _PROBE, self._interface, self._address(host)]
            process = self._stack.enter_context(host.popen(words, text=True, **pipes))
            self._stack.callback(process.kill)
            self._running.append(process)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def measure(self, ranks: int) -> dict[Pair, LinkSpeed]:
        """Measure from each of the first hosts to each other one, one after another."""
        return {pair: self._measured(*pair) for pair in permutations(range(ranks), 2)}

    def _measured(self, sender: int, receiver: int) -> LinkSpeed:
        ticket = self._ask(receiver, "")
        answer = self._ask(sender, f"{self._address(self._hosts[receiver])} {ticket}")
        one = msgspec.json.decode(answer, type=LinkMeasurement)
        assert one.latency is not None
        return LinkSpeed(
            bytes_per_s=one.capacity.payload_bytes_per_s,
            latency_s=one.latency.median_s,
            source="measured",
        )

    def _address(self, host: Host) -> str:
        return "127.0.0.1" if self._interface == "lo" else host.data_address

    def _ask(self, index: int, line: str) -> str:
        process = self._running[index]
        process.stdin.write(line.strip() + "\n")
        process.stdin.flush()
        answer: str = process.stdout.readline()
        if not answer:
            raise JobError(f"{self._hosts[index].name}'s probe ended")
        return answer


@contextlib.contextmanager
def limited(share: float | None) -> Iterator[Path | None]:
    """A control group with this share of a core; ``None``: no limit."""
    if share is None:
        yield None
        return
    group = Path(tempfile.mkdtemp(prefix="mntrain-bench-", dir=CGROUPS))
    try:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(round(share * PERIOD_US)))
        yield group
    finally:
        group.rmdir()


def cpu_speed(
    host: Host, group: Path | None, core: int, hidden_size: int, tokens: int
) -> DeviceSpeed:
    """What the product measures of a host's CPU, as one rank would use it.

    Args:
        hidden_size, tokens: of the layers and microbatches that it will compute.
    """
    words = ["taskset", "-c", str(core), sys.executable]
    words += ["-m", "jupyter_mntrain.telemetry.device.speed", "cpu", "float32"]
    own = {"OMP_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = host.popen(words, environment=own, text=True, **pipes, **entering(group))
    out, _ = process.communicate("\n", timeout=PATIENCE_S)
    if process.returncode:
        raise JobError(f"{host.name}'s CPU was not measured")
    measured = msgspec.json.decode(out.splitlines()[-1], type=DeviceMeasurement)
    empty = node(host.name)
    inventory = msgspec.structs.replace(empty.inventory, devices=(measured,))
    info = msgspec.structs.replace(empty, inventory=inventory)
    speed = speed_of(info, None, "float32", hidden_size=hidden_size, tokens=tokens)
    assert speed is not None
    return speed


def entering(group: Path | None) -> Any:
    """Arguments of a process that enters a control group first."""
    if group is None:
        return {}
    return {"preexec_fn": lambda: (group / "cgroup.procs").write_text("0")}


def train(
    hosts: Sequence[Host],
    recipe: str,
    module: Sequence[str],
    *,
    groups: Sequence[Path | None] | None = None,
    pinned: bool = False,
) -> list[float]:
    """Run the trainer with a rank on each host; seconds of each step.

    Args:
        module: the trainer's, with the words before the recipe.
        groups: a control group for each rank.
        pinned: each rank to a core of its own.
    """
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        (directory / "recipe.toml").write_text(recipe)
        with contextlib.ExitStack() as stack:
            ranks = []
            for rank, host in enumerate(hosts):
                words = [sys.executable, "-m", "torch.distributed.run"]
                words += [f"--nnodes={len(hosts)}", f"--node-rank={rank}", "--nproc-per-node=1"]
                words += [f"--master-addr={hosts[0].data_address}", f"--master-port={PORT}"]
                words += ["-m", *module, str(directory / "recipe.toml")]
                if pinned:
                    words = ["taskset", "-c", str(rank), *words]
                own = {"GLOO_SOCKET_IFNAME": DATA, "OMP_NUM_THREADS": "1"}
                own |= {"MNTRAIN_NODE": host.name, "MNTRAIN_METRICS_DIR": made}
                log = stack.enter_context((directory / f"rank-{rank}.log").open("w+b"))
                group = groups[rank] if groups else None
                process = host.popen(
                    words,
                    environment=own,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    **entering(group),
                )
                ranks.append((process, log))
            for process, _ in ranks:
                process.wait(PATIENCE_S)
            for process, log in ranks:
                if process.returncode:
                    log.seek(0)
                    raise JobError(log.read().decode()[-3000:])
        return [one.step_s for one in steps_of(directory / "rank-0.ndjson")]
