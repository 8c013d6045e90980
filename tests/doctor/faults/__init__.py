"""Faults that are made on a healthy node, one at a time, and the check that must name each.

The page ``docs/doctor.md`` is made of them.
"""

from __future__ import annotations

from tests.doctor.faults.fault import Fault
from tests.doctor.faults.gpus import GPUS
from tests.doctor.faults.network import NETWORK
from tests.doctor.faults.scripts import SCRIPTS
from tests.doctor.faults.software import SOFTWARE
from tests.doctor.faults.surroundings import SURROUNDINGS
from tests.doctor.faults.unlike import UNLIKE
from tests.doctor.faults.ways import WAYS
from tests.doctor.faults.workload import WORKLOAD

FAULTS: tuple[Fault, ...] = (
    *(*SURROUNDINGS, *GPUS, *NETWORK, *UNLIKE),
    *(*WAYS, *SOFTWARE, *WORKLOAD, *SCRIPTS),
)
