"""Wires: links of a node share its interface, and each of them sends one message at a time."""

from __future__ import annotations

import pytest

from jupyter_mntrain.plan.prediction.simulator import Pair, Wires


def ends(rates: dict[Pair, float], messages: list[tuple[Pair, str, float]]) -> dict[str, float]:
    """When messages that are added at these times end."""
    wires: Wires[str] = Wires(rates, lambda rank: rank)
    found: dict[str, float] = {}

    def end_until(now: float) -> None:
        while (following := wires.next_end()) and following[0] <= now:
            found[wires.end(following[1], following[0])[0]] = following[0]

    for pair, name, at in messages:
        end_until(at)
        wires.add(pair, name, at)
    end_until(1e9)
    return found


def test_messages_of_a_link_follow_each_other() -> None:
    found = ends({(0, 1): 0.5}, [((0, 1), "a", 0.0), ((0, 1), "b", 1.0)])
    assert found == {"a": 2.0, "b": 4.0}


def test_both_directions_are_apart() -> None:
    rates = {(0, 1): 1.0, (1, 0): 1.0}
    assert ends(rates, [((0, 1), "a", 0.0), ((1, 0), "b", 0.0)]) == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize("pairs", [((1, 0), (1, 2)), ((0, 1), (2, 1))])
def test_what_a_node_sends_or_receives_at_once_shares_its_interface(
    pairs: tuple[Pair, Pair],
) -> None:
    rates = dict.fromkeys(pairs, 1.0)
    messages = [(pairs[0], "first", 0.0), (pairs[1], "second", 0.5)]
    found = ends(rates, messages)
    assert found["first"] == pytest.approx(1.5), "half of it alone, half of it shared"
    assert found["second"] == pytest.approx(2.0)


def test_what_a_slow_receiver_leaves_goes_to_the_other_link() -> None:
    rates = {(1, 0): 10.0, (1, 2): 1.0}
    found = ends(rates, [((1, 2), "slow", 0.0), ((1, 0), "fast", 0.0)])
    assert found["slow"] == pytest.approx(1.0)
    assert found["fast"] == pytest.approx(1 / 9)
