"""Schedule of pieces: all arrive, the source sends each once, a node that fails stops no other."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from jupyter_mntrain.cluster.files.schedule import SOURCE, PieceSchedule, Send

COUNT = 60


def played(schedule: PieceSchedule, seed: int = 1) -> list[Send]:
    """Everything that is sent, arriving in any order."""
    order, flying, sent = random.Random(seed), list[Send](), list[Send]()
    while True:
        while (send := schedule.next()) is not None:
            flying.append(send)
        if not flying:
            return sent
        send = flying.pop(order.randrange(len(flying)))
        schedule.arrived(send)
        sent.append(send)


def nodes(count: int) -> dict[str, set[int]]:
    return {f"node{number}": set() for number in range(count)}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
def test_the_source_sends_each_piece_once(count: int) -> None:
    schedule = PieceSchedule(COUNT, nodes(count))
    sent = played(schedule)
    assert schedule.is_done
    assert Counter(one.piece for one in sent if one.sender == SOURCE) == dict.fromkeys(
        range(COUNT), 1
    )
    assert len(sent) == COUNT * count
    assert len(set(sent)) == len(sent)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_every_link_carries_one_stream_in_each_direction(count: int) -> None:
    pairs = {(one.sender, one.receiver) for one in played(PieceSchedule(COUNT, nodes(count)))}
    assert len(pairs) == count
    assert len({sender for sender, _ in pairs}) == len({node for _, node in pairs}) == count


def test_a_node_passes_on_what_it_has_or_gets_and_nothing_else() -> None:
    schedule = PieceSchedule(COUNT, nodes(3))
    known: dict[str, set[int]] = nodes(3)
    while not schedule.is_done:
        sends = []
        while (send := schedule.next()) is not None:
            assert send.sender == SOURCE or send.piece in known[send.sender]
            known[send.receiver].add(send.piece)
            sends.append(send)
        # All nodes get a piece at once: none waits until another has all of it.
        assert {one.receiver for one in sends if one.piece == sends[0].piece} == set(known)
        for send in sends:
            schedule.arrived(send)


def test_what_nodes_have_already_is_not_sent_again() -> None:
    held = {"node0": set(range(COUNT)), "node1": set(range(10)), "node2": set()}
    sent = played(PieceSchedule(COUNT, held))
    assert {one.sender for one in sent} <= {"node0", "node1", "node2"}
    assert len(sent) == 2 * COUNT - 10


def test_nodes_that_cannot_reach_each_other_get_all_from_the_source() -> None:
    schedule = PieceSchedule(COUNT, nodes(2))
    sent: list[Send] = []
    while (send := schedule.next()) is not None:
        if send.sender == SOURCE:
            schedule.arrived(send)
            sent.append(send)
        else:
            schedule.blocked(send)
    assert schedule.is_done
    assert len(sent) == 2 * COUNT


@pytest.mark.parametrize("after", [0, 5, 30, 70])
def test_a_node_that_is_lost_takes_no_piece_with_it(after: int) -> None:
    schedule = PieceSchedule(COUNT, nodes(3))
    got: dict[str, set[int]] = nodes(3)
    order, flying, arrived = random.Random(after), list[Send](), 0
    while True:
        while (send := schedule.next()) is not None:
            flying.append(send)
        if not flying:
            break
        send = flying.pop(order.randrange(len(flying)))
        schedule.arrived(send)
        got[send.receiver].add(send.piece)
        arrived += 1
        if arrived == after + 1:
            schedule.drop("node1")
    assert schedule.is_done
    assert got["node0"] == got["node2"] == set(range(COUNT))


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_blocked_or_lost_all_others_get_everything(seed: int) -> None:
    order = random.Random(seed)
    names = sorted(nodes(5))
    held = {name: {piece for piece in range(COUNT) if order.random() < 0.2} for name in names}
    blocked = {(one, other) for one in names for other in names if order.random() < 0.3}
    lost, schedule, flying = set(names[:1]), PieceSchedule(COUNT, held), list[Send]()
    for turn in range(20 * COUNT):
        while (send := schedule.next()) is not None:
            flying.append(send)
        if not flying:
            break
        send = flying.pop(order.randrange(len(flying)))
        if (send.sender, send.receiver) in blocked or (send.sender in lost and turn > COUNT):
            schedule.blocked(send)
        elif send.receiver in lost and turn > COUNT:
            schedule.drop(send.receiver)
        else:
            schedule.arrived(send)
    assert not flying
    assert schedule.is_done


def test_nothing_to_send_is_done_at_once() -> None:
    assert PieceSchedule(0, nodes(2)).next() is None
    assert PieceSchedule(5, {}).next() is None
