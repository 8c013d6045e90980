"""Sightings: several addresses of one node become one view; one id on two machines never does."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.cluster.view.sightings import merge
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import NodeView
from tests.standin.nodes import node

SILENT = Problem(kind=Kind.NO_ANSWER, cause="no answer")


def seen(address: str, name: str | None = "a", **fields: Any) -> NodeView:
    view = {
        key: fields.pop(key)
        for key in ("liveness", "found_by", "problem", "last_seen_s")
        if key in fields
    }
    info = node(name, agent=fields.pop("agent", address), **fields) if name else None
    basis: dict[str, Any] = {"liveness": "up", "found_by": "mdns"}
    return NodeView(address=address, info=info, **(basis | view))


def test_one_node_by_three_addresses_is_one_view() -> None:
    sightings = [
        seen("10.0.1.1:8765"),
        seen("10.0.2.1:8765", found_by="typed"),
        seen("192.168.0.1:8765", liveness="lost", problem=SILENT),
    ]
    for order in permutations(sightings):
        (view,) = merge(order)
        assert view.address == "10.0.2.1:8765", "typed before found"
        assert view.liveness == "up"
        assert view.problem is None


def test_a_live_address_wins_whoever_found_it() -> None:
    typed = seen("10.0.1.1:8765", found_by="typed", liveness="suspect")
    (view,) = merge([typed, seen("10.0.2.1:8765")])
    assert view.address == "10.0.2.1:8765"


def test_nodes_are_sorted_by_name_and_unknown_ones_go_by_address() -> None:
    views = merge([seen("10.0.0.2:1", "b"), seen("10.0.0.9:1", None), seen("10.0.0.3:1", "a")])
    assert [view.name for view in views] == ["10.0.0.9:1", "a", "b"]


def test_a_silent_address_of_a_known_node_is_not_a_node_of_its_own() -> None:
    known = seen("10.0.1.1:8765")
    info = msgspec.structs.replace(known.info, addresses=("10.0.1.1:8765", "10.0.2.1:8765"))
    known = msgspec.structs.replace(known, info=info)
    silent = seen("10.0.2.1:8765", None, liveness="lost", problem=SILENT)
    assert merge([known, silent]) == (known,)


def test_a_copied_node_id_on_another_machine_is_a_conflict_that_names_both() -> None:
    views = merge(
        [
            seen("10.0.0.1:8765", "a", node_id="same", hostname="box1"),
            seen("10.0.0.2:8765", "b", node_id="same", hostname="box2"),
        ]
    )
    assert [view.name for view in views] == ["a", "b"]
    assert all(view.is_conflict and view.liveness == "up" for view in views)
    assert all(view.problem and view.problem.kind is Kind.NODE_ID_TWICE for view in views)
    assert "box2 (10.0.0.2:8765)" in str(views[0].problem)
    assert "box1 (10.0.0.1:8765)" in str(views[1].problem)
    assert all(view.problem and view.problem.fix for view in views)


def test_the_same_host_name_with_two_boot_ids_alive_is_a_conflict_too() -> None:
    views = merge(
        [
            seen("10.0.0.1:8765", hostname="debian", boot_id="one"),
            seen("10.0.0.2:8765", hostname="debian", boot_id="two"),
        ]
    )
    assert [view.is_conflict for view in views] == [True, True]


def test_a_node_that_rebooted_to_another_address_is_itself() -> None:
    before = seen("10.0.0.1:8765", boot_id="one", liveness="lost", last_seen_s=1.0)
    after = seen("10.0.0.7:8765", boot_id="two")
    assert merge([before, after]) == (after,)


def test_a_lost_machine_with_a_copied_id_stays_on_screen() -> None:
    lost = seen("10.0.0.1:8765", hostname="box1", liveness="lost")
    live = seen("10.0.0.2:8765", hostname="box2")
    assert set(merge([lost, live])) == {lost, live}


def test_of_two_lost_sightings_the_later_one() -> None:
    early = seen("10.0.0.1:1", boot_id="one", liveness="lost", last_seen_s=1.0)
    late = seen("10.0.0.2:1", boot_id="two", liveness="lost", last_seen_s=2.0)
    assert merge([late, early]) == merge([early, late]) == (late,)


SIGHTINGS = st.builds(
    seen,
    st.sampled_from(["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]),
    st.sampled_from(["a", "b", None]),
    liveness=st.sampled_from(["up", "suspect", "lost", "connecting"]),
    hostname=st.sampled_from(["box1", "box2"]),
    boot_id=st.sampled_from(["one", "two"]),
)


@given(st.lists(SIGHTINGS, max_size=6))
def test_no_machine_alive_ever_disappears_and_none_is_shown_twice(
    sightings: list[NodeView],
) -> None:
    def machines(views: Any) -> list[Any]:
        return [
            (view.info.node_id, view.info.inventory.hostname, view.info.boot_id)
            for view in views
            if view.info and view.liveness in ("up", "suspect")
        ]

    shown = machines(merge(sightings))
    assert sorted(shown) == sorted(set(machines(sightings)))
