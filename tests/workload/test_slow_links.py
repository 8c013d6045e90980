"""Notes on links: which have to be measured again."""

from __future__ import annotations

from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import Capacity, LinkMeasurement, NodeInfo
from jupyter_mntrain.workload.slow_links import due_links_note
from tests.standin.nodes import nic, node
from tests.wording import says

NOW_S = 1_700_000_000.0


def linked(*names: str, age_s: float = 10.0, outdated: str = "") -> list[NodeInfo]:
    """Nodes of one network that have measured all links."""
    capacity = Capacity(1e8, "measured", time_s=NOW_S - age_s, condition="alone")

    def link(one: str, other: str) -> LinkMeasurement:
        address = f"10.0.0.{names.index(other) + 1}"
        return LinkMeasurement(
            one, other, "eth1", address, capacity, ends=(None, None), outdated=outdated
        )

    return [
        node(
            name,
            nic(
                "eth1",
                f"10.0.0.{last}/24",
                links=tuple(link(name, other) for other in names if other != name),
            ),
        )
        for last, name in enumerate(names, start=1)
    ]


def note(nodes: list[NodeInfo]) -> tuple[str, str] | None:
    found = due_links_note(nodes, [Participant(node=one.name) for one in nodes], NOW_S)
    return None if found is None else (found.cause, found.fix or "")


def test_links_that_are_new_or_were_never_measured_need_no_word() -> None:
    assert note(linked("a", "b")) is None
    two = [node("a", nic("eth1", "10.0.0.1/24")), node("b", nic("eth1", "10.0.0.2/24"))]
    assert note(two) is None


def test_links_that_have_changed_are_named_with_the_reason() -> None:
    found = note(linked("a", "b", outdated="eth1 was down"))
    assert found is not None
    assert "a → b" in found[0]
    assert "eth1 was down" in found[0]
    assert "--due" not in found[1]


def test_more_links_than_a_launch_measures_are_left_to_the_person() -> None:
    found = note(linked("a", "b", "c", "d", age_s=8 * 86400.0))
    assert found is not None
    assert says("8 days", found[0])
    assert says("measure --links --due", found[1])
