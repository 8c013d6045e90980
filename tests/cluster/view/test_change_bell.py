"""Change bell: a thread waits until something is true."""

from __future__ import annotations

import math
import threading

import pytest

from jupyter_mntrain.cluster.view.change_bell import Changes
from jupyter_mntrain.model.errors import SpecError


@pytest.mark.parametrize("timeout_s", [None, math.inf, 1e12])
def test_a_wait_without_end_ends_with_the_change(timeout_s: float | None) -> None:
    changes, seen = Changes(), threading.Event()
    looks: list[bool] = []

    def is_true() -> bool:
        looks.append(seen.is_set())
        if not seen.is_set():
            # While the other waits, or is about to: the change is not missed.
            threading.Thread(target=lambda: (seen.set(), changes.notify())).start()
        return looks[-1]

    assert changes.wait_until(is_true, timeout_s)
    assert looks[0] is False


def test_no_time_is_one_look() -> None:
    looks: list[None] = []
    assert not Changes().wait_until(lambda: looks.append(None), 0)
    assert len(looks) == 1


@pytest.mark.parametrize("timeout_s", [-1, -1e-9, math.nan, -math.inf, "5"])
def test_what_is_no_time_is_refused_before_any_look(timeout_s: float) -> None:
    with pytest.raises(SpecError):
        Changes().wait_until(lambda: pytest.fail("looked"), timeout_s)
