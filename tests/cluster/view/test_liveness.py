"""Liveness: a silent node is suspect, and lost only if a probe fails, too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.cluster.view.agent_watch import (
    PROBE_EVERY_S,
    PROBE_TIMEOUT_S,
    forgiven,
    judge,
    wants_probe,
)
from jupyter_mntrain.cluster.view.cluster_view import TICK_S
from jupyter_mntrain.model.api import LOST_AFTER_S, SUSPECT_AFTER_S


@pytest.mark.parametrize(
    ("silence_s", "was_heard", "is_unanswered", "liveness"),
    [
        (0.0, True, False, "up"),
        (SUSPECT_AFTER_S - 0.01, True, True, "up"),
        (SUSPECT_AFTER_S, True, False, "suspect"),
        (SUSPECT_AFTER_S, True, True, "suspect"),
        (LOST_AFTER_S - 0.01, True, True, "suspect"),
        (LOST_AFTER_S, True, True, "lost"),
        (LOST_AFTER_S, True, False, "suspect"),
        (3600.0, True, False, "suspect"),
        (0.0, False, False, "connecting"),
        (0.0, False, True, "connecting"),
        (LOST_AFTER_S, False, False, "connecting"),
        (LOST_AFTER_S, False, True, "lost"),
    ],
)
def test_the_judgment(
    silence_s: float, was_heard: bool, is_unanswered: bool, liveness: str
) -> None:
    assert judge(silence_s, was_heard=was_heard, is_unanswered=is_unanswered) == liveness


def test_a_goodbye_is_believed_at_once() -> None:
    assert judge(0.0, was_heard=True, is_unanswered=False, said_goodbye=True) == "lost"


@given(st.floats(0, 1e6), st.booleans())
def test_silence_alone_never_makes_a_node_lost(silence_s: float, was_heard: bool) -> None:
    assert judge(silence_s, was_heard=was_heard, is_unanswered=False) != "lost"


def test_a_probe_is_sent_when_suspicion_begins_and_repeated() -> None:
    assert not wants_probe(SUSPECT_AFTER_S - 0.01, None)
    assert wants_probe(SUSPECT_AFTER_S, None)
    assert not wants_probe(SUSPECT_AFTER_S + 1, PROBE_EVERY_S - 0.01)
    assert wants_probe(SUSPECT_AFTER_S + 1, PROBE_EVERY_S)


def test_the_promises_of_three_and_six_seconds_leave_room_for_looking_and_probing() -> None:
    assert SUSPECT_AFTER_S + TICK_S <= 3.0
    assert SUSPECT_AFTER_S + TICK_S + PROBE_TIMEOUT_S <= LOST_AFTER_S
    assert LOST_AFTER_S + TICK_S <= 6.0


def test_silence_while_we_did_not_listen_is_our_own() -> None:
    assert forgiven(TICK_S, TICK_S) == 0.0
    assert forgiven(3 * TICK_S, TICK_S) == 0.0
    assert forgiven(60.0, TICK_S) == 60.0 - TICK_S
