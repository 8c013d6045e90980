"""Queues: what NCCL would make of the sends and receives that the real runtime posts.

NCCL starts the operations of one communicator one after another on each rank. Four real ranks
record what they post, in which group and on which stream; a simulator walks it with those queues.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import msgspec
import pytest

from jupyter_mntrain.plan.prediction.simulator import (
    DeadlockError,
    LinkTimes,
    Pair,
    QueueOf,
    StageTimes,
    simulate,
)
from jupyter_mntrain.recipe.instructions import Actions, StageAction, Stages
from jupyter_mntrain.recipe.layout import Layout
from jupyter_mntrain.recipe.schedules import BATCHED, KINDS
from tests.train.pipeline.recorded_cases import (
    CASES,
    LINKS,
    RANKS,
    Recorded,
    Step,
    ahead,
    name_of,
)
from tests.train.ranks import run_ranks

pytestmark = pytest.mark.slow

TIMES = StageTimes(forward=1.0, backward=2.0, inputs=1.0, weights=1.0)

Ranks = tuple[Recorded, ...]
"""A step of all ranks."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Ranks]:
    recipe = tmp_path_factory.mktemp("recorded") / "recipe.toml"
    ended = run_ranks(recipe, ["here"] * RANKS, program=_record)
    assert [one.exit_code for one in ended] == [0] * RANKS, ended
    files = [recipe.parent / f"rank-{rank}.json" for rank in range(RANKS)]
    ranks = [msgspec.json.decode(one.read_bytes(), type=dict[str, Recorded]) for one in files]
    return {name: tuple(rank[name] for rank in ranks) for name in CASES}


def _record(words: list[str]) -> None:
    from tests.train.pipeline.recorded import record_all

    record_all(words)


def messages(rank: Recorded) -> list[Step]:
    return [step for step in rank.steps if step.group]


def action_of(step: Step) -> StageAction:
    return StageAction(step.kind, step.stage, step.microbatch)


def orders_of(ranks: Ranks) -> list[Actions]:
    return [tuple(map(action_of, rank.steps)) for rank in ranks]


def stages_of(name: str) -> Stages:
    kind = KINDS[CASES[name].pipeline.schedule]
    return Stages(RANKS, kind.stages_per_rank, kind.is_v)


def walk(
    name: str,
    ranks: Ranks,
    link: tuple[float, float],
    *,
    queue_of: QueueOf | None = None,
    receives_beside: bool | None = None,
    orders: list[Actions] | None = None,
) -> float:
    """Return the seconds of a step over NCCL, as recorded unless something else is given."""
    stages, by_action = stages_of(name), {}
    for rank in ranks:
        sizes = {one.batch: 0 for one in messages(rank)}
        for one in messages(rank):
            sizes[one.batch] += 1
        for one in messages(rank):
            # torch begins a lone message over a communicator of the two ranks.
            by_action[action_of(one)] = (one.group, sizes[one.batch] == 1)

    def recorded_queue(action: StageAction, pair: Pair) -> Hashable:
        group, is_alone = by_action[action]
        return (group, frozenset(pair)) if is_alone else group

    beside = {one.is_beside for rank in ranks for one in messages(rank) if "RECV" in one.kind}
    assert len(beside) == 1
    return simulate(
        orders or orders_of(ranks),
        stages,
        (TIMES,) * stages.number,
        lambda _sender, _receiver: LinkTimes(*link),
        queue_of or recorded_queue,
        is_batched=CASES[name].pipeline.schedule in BATCHED,
        receives_beside=beside.pop() if receives_beside is None else receives_beside,
    ).seconds


@pytest.mark.parametrize("name", [name for name in CASES if name not in BATCHED])
def test_each_direction_has_a_group_which_both_ranks_have_connected_before(
    recorded: Mapping[str, Ranks], name: str
) -> None:
    directions: dict[str, set[tuple[int, int]]] = {}
    for number, rank in enumerate(recorded[name]):
        assert messages(rank)
        for one in messages(rank):
            is_send = one.kind.startswith("SEND")
            direction = (number, one.peer) if is_send else (one.peer, number)
            directions.setdefault(one.group, set()).add(direction)
            assert sorted(one.group_ranks) == sorted(direction)
            assert one.group in rank.connected
            assert one.group in recorded[name][one.peer].connected
            assert one.is_beside == (not is_send)
        batches = [one.batch for one in messages(rank)]
        assert len(batches) == len(set(batches)), "torch would batch over the first one's group"
    assert all(len(one) == 1 for one in directions.values())
    stages = stages_of(name)
    layout = Layout(RANKS, tuple(range(n, n + 1) for n in range(stages.number)), stages.is_v)
    assert sorted(one for only in directions.values() for one in only) == [*layout.directions()]


@pytest.mark.parametrize("name", sorted(BATCHED))
def test_what_torch_batches_is_of_one_group(recorded: Mapping[str, Ranks], name: str) -> None:
    for rank in recorded[name]:
        assert {one.group_ranks for one in messages(rank)} == {tuple(range(RANKS))}
        assert not rank.connected


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("name", CASES)
def test_no_schedule_waits_forever(
    recorded: Mapping[str, Ranks], name: str, link: tuple[float, float]
) -> None:
    assert walk(name, recorded[name], link) > 3 * CASES[name].pipeline.microbatches


@pytest.mark.parametrize(
    ("link", "seconds", "over_one_group"),
    [
        # Latency and occupied; a forward pass takes 1, a backward pass 2. The second figure is that
        # of one communicator per pair of ranks, receives posted where the rank computes; the third
        # that of one communicator for all of a rank.
        ((0.0, 0.3), 202.8, (202.8, 203.8)),
        ((0.0, 1.0), 207.0, (207.0, 274.0)),
        ((0.0, 2.0), 213.0, (282.0, 541.0)),
        ((1.0, 0.5), 210.0, (307.0, 403.0)),
        ((3.0, 0.5), 263.5, (539.0, 944.0)),
    ],
)
def test_eager_1f1b_keeps_its_gain_over_nccl(
    recorded: Mapping[str, Ranks],
    link: tuple[float, float],
    seconds: float,
    over_one_group: tuple[float, float],
) -> None:
    name = name_of(ahead(*link))
    ranks = recorded[name]
    assert walk(name, ranks, link) == pytest.approx(seconds)
    merged: tuple[QueueOf, ...] = (lambda _, pair: frozenset(pair), lambda _, _pair: "all")
    found = [walk(name, ranks, link, queue_of=one, receives_beside=False) for one in merged]
    assert found == pytest.approx(over_one_group)


def test_without_the_stream_of_receives_a_slow_link_holds_up_what_is_behind(
    recorded: Mapping[str, Ranks],
) -> None:
    name = name_of(ahead(0.0, 2.0))
    assert walk(name, recorded[name], (0.0, 2.0), receives_beside=False) == pytest.approx(225.0)


def test_ranks_that_post_in_different_orders_are_found(recorded: Mapping[str, Ranks]) -> None:
    name = name_of(ahead(0.0, 1.0))
    orders = orders_of(recorded[name])
    received = [at for at, one in enumerate(orders[1]) if one.kind == "RECV_F"]
    swapped = [*orders[1]]
    first, second = received[:2]
    swapped[first], swapped[second] = swapped[second], swapped[first]
    orders[1] = tuple(swapped)
    with pytest.raises(DeadlockError):
        walk(name, recorded[name], (0.0, 1.0), orders=orders)
