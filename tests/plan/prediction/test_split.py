"""Split: as good as trying all of them."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.plan.prediction.step import RankCost, best_split

COSTS = st.builds(RankCost, st.floats(0.1, 10.0), st.floats(0.0, 20.0), st.integers(1, 9))


@given(st.integers(1, 9), st.lists(COSTS, min_size=1, max_size=4))
def test_no_other_split_has_a_faster_slowest_rank(layers: int, costs: list[RankCost]) -> None:
    possible = [
        split
        for split in product(*(range(1, min(layers, cost.most) + 1) for cost in costs))
        if sum(split) == layers
    ]
    found = best_split(layers, costs)
    if not possible:
        assert found is None
        return
    assert found in possible

    def slowest(split: tuple[int, ...]) -> float:
        return max(cost.of(own) for cost, own in zip(costs, split, strict=True))

    assert slowest(found) == pytest.approx(min(map(slowest, possible)))


@pytest.mark.parametrize(
    ("costs", "split"),
    [
        ([RankCost(1.0), RankCost(1.0)], (4, 4)),
        ([RankCost(1.0), RankCost(2.0)], (6, 2)),
        ([RankCost(1.0), RankCost(1.0, fixed=4.0)], (6, 2)),  # the head weighs like four layers
        ([RankCost(1.0, most=3), RankCost(1.0)], (3, 5)),
        ([RankCost(1.0, most=3), RankCost(1.0, most=4)], None),
    ],
)
def test_speed_head_and_memory_decide(costs: list[RankCost], split: tuple[int, ...] | None) -> None:
    assert best_split(8, costs) == split


def test_many_layers_on_many_ranks() -> None:
    found = best_split(80, [RankCost(1.0 + rank % 3) for rank in range(64)])
    assert found is not None
    assert sum(found) == 80
    assert all(own == 1 for rank, own in enumerate(found) if rank % 3 == 2)
    assert max(own * (1.0 + rank % 3) for rank, own in enumerate(found)) == 3.0
