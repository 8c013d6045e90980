"""Link speeds: what was given or measured, and else a guess that says so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jupyter_mntrain.model.records.node import Capacity, Condition, Interface, Latency, NodeInfo
from jupyter_mntrain.model.records.plan import LinkSpeed
from jupyter_mntrain.plan.measured_speeds import PAYLOAD_SHARE, Pair, link_speeds
from tests.standin.jobs import measured_links
from tests.standin.nodes import LO, nic, node

MBIT = 1e6 / 8


def ends(*interfaces: Interface) -> list[NodeInfo]:
    return [node(name, one) for name, one in zip("abc", interfaces, strict=False)]


def speeds(*interfaces: Interface, given: Capacity | None = None) -> dict[Pair, LinkSpeed]:
    return link_speeds(ends(*interfaces), interfaces, given)


def eth1(last: int, **fields: Any) -> Interface:
    return nic("eth1", f"10.0.0.{last}/24", **fields)


def link(receiver: str, mbit_per_s: float, latency_s: float, how: Condition = "alone") -> Any:
    capacity = Capacity(mbit_per_s * MBIT, "measured", condition=how, payload_share=0.9)
    return tuple(
        msgspec.structs.replace(one, latency=Latency(latency_s, 2 * latency_s, 200))
        for one in measured_links("?", (receiver,), capacity)
    )


def test_each_direction_has_the_payload_and_the_latency_that_were_measured() -> None:
    found = speeds(eth1(1, links=link("b", 900, 1e-4)), eth1(2, links=link("a", 100, 2e-3)))
    assert found == {
        (0, 1): LinkSpeed(0.9 * 900 * MBIT, 1e-4, "measured", is_measured=True),
        (1, 0): LinkSpeed(0.9 * 100 * MBIT, 2e-3, "measured", is_measured=True),
    }


def test_a_measurement_beside_a_job_is_one_and_says_so() -> None:
    found = speeds(eth1(1, links=link("b", 900, 1e-4, "beside a job")), eth1(2))
    assert found[0, 1].is_measured
    assert "beside a job" in found[0, 1].source


def test_what_the_user_gives_is_no_guess_and_the_latency_is_still_the_measured_one() -> None:
    whole = Capacity(50 * MBIT, "given")
    found = speeds(eth1(1, links=link("b", 900, 3e-4)), eth1(2), given=whole)
    assert set(found.values()) == {LinkSpeed(50 * MBIT, 3e-4, "given", is_measured=True)}
    found = speeds(eth1(1, given=whole), eth1(2), eth1(3))
    assert [found[pair].source == "given" for pair in ((0, 2), (2, 0), (1, 2))] == [
        True,
        True,
        False,
    ]


def test_a_direction_that_was_not_measured_is_guessed_from_the_other_one() -> None:
    found = speeds(eth1(1, links=link("b", 900, 1e-4), speed_mbit_per_s=10_000), eth1(2))
    assert (found[1, 0].bytes_per_s, found[1, 0].latency_s) == (0.9 * 900 * MBIT, 1e-4)
    assert not found[1, 0].is_measured


@pytest.mark.parametrize(
    ("one", "other", "mbit_per_s"),
    [
        (eth1(1, speed_mbit_per_s=10_000), eth1(2, speed_mbit_per_s=2_500), 2_500),
        (eth1(1, speed_mbit_per_s=10_000), eth1(2), 1_000),
        (eth1(1, speed_mbit_per_s=-1), eth1(2, kind="wireless"), 100),
        (LO, LO, 16_000),
    ],
)
def test_a_link_that_nobody_measured_is_as_fast_as_its_slower_end_says(
    one: Interface, other: Interface, mbit_per_s: float
) -> None:
    found = speeds(one, other)
    expected = pytest.approx(mbit_per_s * MBIT * PAYLOAD_SHARE)
    assert all(speed.bytes_per_s == expected for speed in found.values())
    assert not any(speed.is_measured for speed in found.values())
    assert all(0 < speed.latency_s < 0.01 and speed.source for speed in found.values())


def test_one_participant_has_no_link() -> None:
    assert speeds(eth1(1)) == {}
