"""Launches that are refused before anything runs."""

from __future__ import annotations

import re

import pytest

from tests.faults.bench import Bench

pytestmark = [pytest.mark.netlab, pytest.mark.slow]


@pytest.mark.parametrize(
    ("members", "says"),
    [
        (("node1:1:eth1", "node2:1:eth9"), r"node2: has no interface 'eth9'"),
        (("node1:1:docker0", "node2:1:docker0"), r"has the address 172.17.0.1, and so has node1's"),
        (("node1:1:lo", "node2:1:lo"), r"'lo' is not connected to other machines"),
    ],
)
def test_a_wrong_interface_is_refused(bench: Bench, members: tuple[str, ...], says: str) -> None:
    words = [word for member in members for word in ("--member", member)]
    said = bench.launch(*words, code=2)
    assert re.search(says, said["error"])
    assert "Fix:" in said["error"]
