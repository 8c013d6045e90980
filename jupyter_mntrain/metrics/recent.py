"""Recent: the steps that every headline figure is taken from.

Recent steps ended within ``RECENT_S`` before the newest one ended; the newest always counts.
A link's figures are of the time that these steps took. Where replicas meet after every so many
steps, so many are recent, whatever their time, so that one meeting is among them.
"""

from __future__ import annotations

from typing import Final

from jupyter_mntrain.model import tunables

RECENT_S: Final = tunables.seconds("figures.recent_s")
MOST_RECENT_STEPS: Final = tunables.count("figures.recent_steps")
WARM_UP_STEPS: Final = tunables.count("figures.warm_up_steps")
