from __future__ import annotations

import pytest

from jupyter_mntrain.trust.driver_membership import DriverMembership
from tests.trust.registering import LIFE, Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def identity(clock: Clock) -> DriverMembership:
    made = DriverMembership.make("home", clock=clock)
    return DriverMembership(made.directory, clock=clock, lifetime=LIFE)
