"""Link probe on busy processors: from which share of waiting for a core it reads too low.

Needs root, for two simulated hosts. Their link is shaped, so its rate is known. Measurements with
and without busy processes alternate; the table says, for each threshold, how many of those that
read more than 5 % too low it finds, and how many of the others it blames.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from tests.netlab import DATA, Host, own_lab

RATES_MBIT_PER_S = (200, 1000, 1500, 2000, 3000)
PAYLOAD = 1448 / 1514
"""What TCP with timestamps carries of each Ethernet frame."""

BUSY = (0, 4)
"""Busy processes on the whole machine."""

SECONDS = 1.0
TOO_LOW = 0.05
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8)

TELLING = """
import sys, time
from jupyter_mntrain.agent.machine.links import probe
from jupyter_mntrain.agent.machine.links.turn import ConditionWatch
from jupyter_mntrain.model.records.probes import ProbeSend
class Telling(ConditionWatch):
    def condition(self):
        print("share", self.waited_share(), flush=True)
        return super().condition()
probe.ConditionWatch = Telling
"""

SINK = f"""{TELLING}
for address in sys.stdin:
    ticket = probe.open_sink(address.strip(), "node2", bool)
    print("ticket", ticket.port, ticket.token, flush=True)
"""

SENDER = f"""{TELLING}
for line in sys.stdin:
    interface, source, address, port, token, seconds = line.split()
    request = ProbeSend(interface=interface, source_address=source, address=address,
                        port=int(port), token=token, peer="node2", seconds=float(seconds))
    capacity = probe.measure(request, "node1", bool).capacity
    print("rate", capacity.payload_bytes_per_s, flush=True)
"""


class Sample(NamedTuple):
    """One measurement: the larger share of both ends, and the rate over the true one."""

    mbit_per_s: int
    busy: int
    waited_share: float
    rate: float

    @property
    def is_too_low(self) -> bool:
        return self.rate < 1 - TOO_LOW


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    samples: list[Sample] = []
    with own_lab(2) as lab, Probe(*lab.hosts) as probe:
        for mbit_per_s in RATES_MBIT_PER_S:
            lab.reshape(DATA, f"rate {mbit_per_s}mbit burst 256kb latency 50ms")
            for _ in range(arguments.repeats):
                for busy in BUSY:
                    with loaded(busy):
                        share, rate = probe.measure()
                    true = mbit_per_s * 1e6 / 8 * PAYLOAD
                    samples.append(Sample(mbit_per_s, busy, share, rate / true))
    report(samples)
    if arguments.json:
        arguments.json.write_text(json.dumps(samples) + "\n")
    return 0


class Probe(contextlib.ExitStack):
    """The probe's two ends, each in a process of its own that stays."""

    def __init__(self, one: Host, two: Host) -> None:
        super().__init__()
        self._hosts = one, two
        self._sender, self._sink = self._start(one, SENDER), self._start(two, SINK)

    def _start(self, host: Host, program: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = host.popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True)
        self.callback(process.wait)
        self.callback(process.kill)
        return process

    def measure(self) -> tuple[float, float]:
        """Larger share of waiting; bytes per second."""
        one, two = self._hosts
        say(self._sink, two.data_address)
        port, token = heard(self._sink.stdout, "ticket")
        say(self._sender, DATA, one.data_address, two.data_address, port, token, str(SECONDS))
        shares = [float(heard(end.stdout, "share")[0]) for end in (self._sender, self._sink)]
        return max(shares), float(heard(self._sender.stdout, "rate")[0])


def say(process: subprocess.Popen[str], *words: str) -> None:
    assert process.stdin is not None
    print(*words, file=process.stdin, flush=True)


def heard(stdout: IO[str] | None, word: str) -> list[str]:
    assert stdout is not None
    first, *others = stdout.readline().split() or [""]
    if first != word:
        raise SystemExit(f"expected {word!r}, not {first!r}")
    return others


@contextlib.contextmanager
def loaded(busy: int) -> Iterator[None]:
    """Processes that only compute."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(busy)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def report(samples: list[Sample]) -> None:
    low = [one for one in samples if one.is_too_low]
    fine = [one for one in samples if not one.is_too_low]
    print(f"{len(samples)} measurements, {len(low)} more than {100 * TOO_LOW:.0f} % too low")
    print("threshold  found  wrongly blamed  errors")
    for threshold in THRESHOLDS:
        found = sum(one.waited_share > threshold for one in low)
        blamed = sum(one.waited_share > threshold for one in fine)
        errors = len(low) - found + blamed
        print(f"{threshold:9.2f}  {found:5}  {blamed:14}  {errors:6}")


if __name__ == "__main__":
    sys.exit(main())
