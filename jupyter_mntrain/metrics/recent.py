"""Recent: the steps that every headline figure of a running job is taken from.

Recent steps ended within ``RECENT_S`` before the newest one ended; the newest always counts, and
the first ones of an attempt never do. Where replicas meet after every so many steps, at least so
many are recent, so that one meeting is among them. Rates are what these steps did over the time
from the first one's begin to the last one's end, with everything that stood between them.
"""

from __future__ import annotations

from typing import Final

from jupyter_mntrain.model import tunables

RECENT_S: Final = tunables.seconds("figures.recent_s")
LONG_STEP: Final = tunables.ratio("figures.long_step")
STALL_S: Final = tunables.seconds("watchdog.least_s")
"""A long step that takes more is a stall."""
WARM_UP_STEPS: Final = tunables.count("figures.warm_up_steps")
