"""Bandwidth probe, against the known rates of the lab's token buckets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.netlab import DATA, Lab, missing, own_lab

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=f"no lab: {missing()}"),
]

PAYLOAD = 1448 / 1514
"""What TCP with timestamps carries of each Ethernet frame."""

ACCURACY = 0.03

SINK = """
import sys, time
from jupyter_mntrain.agent.machine.probe import open_sink
ticket = open_sink(sys.argv[1], "node2", bool)
print(ticket.port, ticket.token, flush=True)
time.sleep(60)
"""

SENDER = """
import sys
from jupyter_mntrain.agent.machine.probe import measure
from jupyter_mntrain.model.api import ProbeSend
interface, source, address, port, token = sys.argv[1:]
request = ProbeSend(interface=interface, source_address=source, address=address, port=int(port),
                    token=token, peer="node2", seconds=4.0)
capacity = measure(request, "node1", bool).capacity
print(capacity.bytes_per_s, capacity.payload_bytes_per_s)
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with own_lab(2) as made:
        yield made


@pytest.mark.parametrize("mbit_per_s", [40, 100])
def test_a_known_rate_is_measured(lab: Lab, mbit_per_s: int) -> None:
    lab.reshape(DATA, f"rate {mbit_per_s}mbit burst 32kb latency 50ms")
    one, two = lab.hosts
    # Of packets that the kernel merges, a veth counts one header.
    plain = one.run(["ip", "link", "set", "dev", DATA, "gso_max_segs", "1"])
    assert plain.returncode == 0, plain.stderr
    sink = two.popen(
        [sys.executable, "-c", SINK, two.data_address], stdout=subprocess.PIPE, text=True
    )
    try:
        assert sink.stdout is not None
        port, token = sink.stdout.readline().split()
        words = [DATA, one.data_address, two.data_address, port, token]
        done = one.run([sys.executable, "-c", SENDER, *words], timeout_s=60)
        assert done.returncode == 0, done.stderr
    finally:
        sink.kill()
        sink.wait()
        sink.stdout.close()
    counted, payload = map(float, done.stdout.split())
    rate = mbit_per_s * 1e6 / 8
    assert payload == pytest.approx(rate * PAYLOAD, rel=ACCURACY)
    assert counted == pytest.approx(rate, rel=ACCURACY), "what the counters of a full link show"
