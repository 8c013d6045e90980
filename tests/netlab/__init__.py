"""A simulated cluster on one machine: network namespaces with real multicast and real TCP.

As a command: ``python -m tests.netlab up 3``, ``… exec node2 CMD…``, ``… status``, ``… down``.
As a library: ``with own_lab(3) as lab: lab.host("node2").run(["ip", "addr"])``.
"""

from tests.netlab.commands import LabError
from tests.netlab.host import DATA, MANAGEMENT, Host, HostProcess
from tests.netlab.lab import RATES_BYTES_PER_S, Lab, existing
from tests.netlab.owned import clean_stale, own_lab
from tests.netlab.requirements import missing

__all__ = [
    "DATA",
    "MANAGEMENT",
    "RATES_BYTES_PER_S",
    "Host",
    "HostProcess",
    "Lab",
    "LabError",
    "clean_stale",
    "existing",
    "missing",
    "own_lab",
]
