"""iperf3 next to the link probe, between two hosts of a lab, each in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median
from typing import NamedTuple

from tests.netlab.lab import DATA, Host
from tests.waiting import until

SINK = """
import sys, time
from jupyter_mntrain.agent.machine.links.probe import open_sink
ticket = open_sink(sys.argv[1], "node2", bool)
print(ticket.port, ticket.token, flush=True)
time.sleep(60)
"""

SENDER = """
import sys
from jupyter_mntrain.agent.machine.links.probe import measure
from jupyter_mntrain.model.records.probes import ProbeSend
interface, source, address, port, token, seconds = sys.argv[1:]
request = ProbeSend(interface=interface, source_address=source, address=address, port=int(port),
                    token=token, peer="node2", seconds=float(seconds))
capacity = measure(request, "node1", bool).capacity
print(capacity.bytes_per_s, capacity.payload_bytes_per_s)
"""


class ProbedRate(NamedTuple):
    """Bytes per second, as the interface counts them, and of payload."""

    counted: float
    payload: float


def probed(sender: Host, receiver: Host, seconds: float) -> ProbedRate:
    """What the probe measures, in so many seconds after its warm-up."""
    sink = receiver.popen(
        [sys.executable, "-c", SINK, receiver.data_address], stdout=subprocess.PIPE, text=True
    )
    try:
        assert sink.stdout is not None
        ticket = sink.stdout.readline().split()
        words = [DATA, sender.data_address, receiver.data_address, *ticket, str(seconds)]
        done = sender.run([sys.executable, "-c", SENDER, *words], timeout_s=60)
        assert done.returncode == 0, done.stderr
    finally:
        sink.kill()
        sink.wait()
        sink.stdout.close()
    return ProbedRate(*map(float, done.stdout.split()))


def iperf_rate(sender: Host, receiver: Host, seconds: int) -> float:
    """Payload in bytes per second: the median of what iperf3's receiver counted in each second,
    after one that it omits. iperf3's own mean also counts what lay in buffers as it began.
    """
    address = receiver.data_address
    server = receiver.popen(
        ["iperf3", "-s", "-1", "-J", "-B", address], stdout=subprocess.PIPE, text=True
    )
    try:
        until(lambda: "5201" in receiver.run(["ss", "-tln"]).stdout, "iperf3 to listen")
        client = ["iperf3", "-c", address, "-B", sender.data_address, "-t", str(seconds)]
        done = sender.run([*client, "-O", "1"], timeout_s=60)
        assert done.returncode == 0, done.stdout + done.stderr
        counted, _ = server.communicate(timeout=60)
    finally:
        server.kill()
        server.wait()
    parts = [part["sum"] for part in json.loads(counted)["intervals"]]
    whole = [part for part in parts if not part["omitted"] and part["seconds"] > 0.5]
    return float(median(part["bits_per_second"] for part in whole)) / 8
