"""Problems as text: what several nodes have alike is said once."""

from __future__ import annotations

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.show.problems import warning_texts
from tests.wording import says


def test_what_is_the_same_on_several_nodes_is_said_once_with_their_names() -> None:
    same = [Problem(Kind.NO_FILE, "no data", "send it", node=f"node{n}", time_s=n) for n in (1, 2)]
    other = Problem(Kind.NO_FILE, "no data", "mount it", node="node3")
    everywhere = Problem(Kind.NO_FILE, "all of it", "")
    told = [str(one) for one in warning_texts([same[0], other, same[1], everywhere])]
    expected = ["⚠ node1, node2: no data", "⚠ node3: no data", "⚠ all of it"]
    assert [one.partition(".")[0] for one in told] == expected
    assert says("send it", told[0])
    assert says("mount it", told[1])
