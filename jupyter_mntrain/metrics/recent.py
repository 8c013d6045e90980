"""Recent: the steps that every headline figure is taken from."""

from __future__ import annotations

from typing import Final

RECENT_S: Final = 10.0
"""Recent steps are those that ended within this time before the newest one ended, and at least
that one. Long enough that a single slow step does not move a median, short enough that a job that
has slowed shows it within seconds. A link's figures are of the time that these steps took."""

MOST_RECENT_STEPS: Final = 100
"""Of very short steps no more: their median does not change any further."""

WARM_UP_STEPS: Final = 2
"""The first steps of an attempt are never recent: memory is allocated, kernels are compiled and
connections are opened in them."""
