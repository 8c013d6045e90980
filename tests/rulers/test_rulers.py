"""Rulers: no figure of any play is off by more than its limit, on any surface, at any moment."""

from __future__ import annotations

import pytest

from tests.rulers.plays import PLAYS, Play
from tests.rulers.table import measure, wrong

SHORT = [play for play in PLAYS if play.total <= 300]


@pytest.mark.parametrize("play", SHORT, ids=lambda play: play.name)
def test_every_surface_shows_what_is_true(play: Play) -> None:
    rows = list(measure([play]))
    assert len(rows) > 100
    assert not wrong(rows)
