"""A simulated cluster on one machine: network namespaces with real multicast and real TCP.

As a command: ``python -m tests.netlab up 3``, ``… exec node2 CMD…``, ``… status``, ``… down``.
As a fixture: :func:`tests.e2e.conftest.lab`.
"""

from tests.netlab.lab import Host, Lab, missing

__all__ = ["Host", "Lab", "missing"]
