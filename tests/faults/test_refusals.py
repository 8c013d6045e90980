"""Launches that are refused before anything runs."""

from __future__ import annotations

import pytest

from tests.faults.bench import Bench
from tests.wording import says

pytestmark = [pytest.mark.netlab, pytest.mark.slow]


@pytest.mark.parametrize(
    ("members", "node", "cause"),
    [
        (("node1:1:eth1", "node2:1:eth9"), "node2", "has no interface 'eth9'"),
        (
            ("node1:1:docker0", "node2:1:docker0"),
            "node2",
            "has the address 172.17.0.1, and so has node1's",
        ),
        (("node1:1:lo", "node2:1:lo"), "node1", "'lo' is not connected to other machines"),
    ],
)
def test_a_wrong_interface_is_refused(
    bench: Bench, members: tuple[str, ...], node: str, cause: str
) -> None:
    words = [word for member in members for word in ("--member", member)]
    problem = bench.launch(*words, code=2)
    assert problem["node"] == node
    assert says(cause, problem["cause"])
    assert problem["fix"]
