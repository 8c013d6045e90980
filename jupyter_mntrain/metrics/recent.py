"""Recent: the steps from which every headline figure of a running job is computed.

Recent steps ended within ``RECENT_S`` before the newest one ended; the newest always counts, and
the first ones of an attempt never do. Where replicas sync after every so many steps, at least so
many are recent, so that one sync is among them. Rates are what these steps did over the time
from the first one's begin to the last one's end, with everything that stood between them.
"""

from __future__ import annotations

from typing import Final

from jupyter_mntrain.model import tunables

RECENT_S: Final = 60.0
"""Headline figures of a job that runs cover the steps that ended within this time before the
newest: long enough that what recurs (long steps, evaluations, saves) is in it as often as on
average."""
LONG_STEP: Final = 3.0
"""A step that takes so many times the median of those before it is a long one."""
STALL_S: Final = tunables.seconds("watchdog.least_s")
"""A long step that takes longer than this is a stall."""
WARM_UP_STEPS: Final = 2
"""Steps at the start of an attempt that never count: they allocate, compile and connect."""
