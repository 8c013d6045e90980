"""Judge: the verdict from the evidence of all parts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.model.failure.judge import SAME_MOMENT_S, judge, lacks_links
from jupyter_mntrain.model.failure.kinds import SYMPTOMS, Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.evidence import Evidence, LinkTry, NetworkState, StuckConnection
from jupyter_mntrain.model.records.job import PartStatus, RankStatus
from jupyter_mntrain.model.records.verdict import Verdict

LOST_S = 10.0
ETH1 = NetworkState(
    interface="eth1", is_there=True, is_up=True, addresses=("10.0.0.1/24",), sent=1000
)


def end(kind: Kind, time_s: float | None = LOST_S, cause: str = "it ended") -> Problem:
    return Problem(kind=kind, cause=cause, fix="do something", time_s=time_s)


def part(number: int, problem: Problem | None = None, **changes: Any) -> PartStatus:
    """Node ``n{number}`` with one rank; failed if there is a problem, else canceled."""
    own = problem and msgspec.structs.replace(problem, rank=Rank(number))
    rank = RankStatus(rank=Rank(number), state="failed" if problem else "canceled", problem=own)
    made = PartStatus(
        node_id=NodeId(f"{number:032x}"),
        node=f"n{number}",
        state="failed" if problem else "canceled",
        ranks=(rank,),
        problem=rank.problem,
    )
    return msgspec.structs.replace(made, **changes)


def lost(number: int, **changes: Any) -> PartStatus:
    return part(number, end(Kind.CONNECTION_LOST), **changes)


def stopped(number: int, problem: Problem | None = None, **changes: Any) -> PartStatus:
    """A part that was stopped a second after the others had failed, and how its rank ended."""
    made = msgspec.structs.replace(
        part(number, problem),
        state="canceled",
        problem=None,
        stopped_s=LOST_S + 1.0,
        stopped_after_failure=True,
    )
    return msgspec.structs.replace(made, **changes)


def evidence(**changes: Any) -> Evidence:
    shown: dict[str, Any] = {"network": ETH1, "at_launch": ETH1, "links": ()} | changes
    return Evidence(time_s=LOST_S, **shown)


def verdict(*parts: PartStatus) -> Verdict:
    found = judge(parts)
    assert found is not None
    assert found.problem.fix
    return found


def told(found: Verdict) -> tuple[Kind, str | None, str]:
    return found.problem.kind, found.problem.node, found.sureness


def test_a_rank_that_ended_by_itself_is_the_cause_even_in_a_part_that_was_stopped() -> None:
    found = verdict(lost(0), stopped(1, end(Kind.EXCEPTION, LOST_S - 0.2)))
    assert told(found) == (Kind.EXCEPTION, "n1", "certain")
    assert [one.kind for one in found.others] == []


def test_what_ended_after_it_was_stopped_explains_nothing() -> None:
    late = stopped(1, end(Kind.EXCEPTION, LOST_S + 1.5), evidence=evidence())
    assert told(verdict(lost(0, evidence=evidence()), late))[0] is Kind.UNKNOWN_CAUSE
    timeless = stopped(1, end(Kind.EXCEPTION, None), evidence=evidence())
    assert told(verdict(lost(0, evidence=evidence()), timeless))[0] is Kind.UNKNOWN_CAUSE


def test_of_two_ends_the_first_counts_and_a_reaction_does_not() -> None:
    first, second = part(0, end(Kind.KILLED, 5.0)), part(1, end(Kind.EXCEPTION, 8.0))
    found = verdict(first, second)
    assert told(found) == (Kind.KILLED, "n0", "certain")
    assert [one.node for one in found.others] == ["n1"]
    assert "3.0 s" in found.reasons
    reaction = part(0, end(Kind.EXIT_CODE, 5.0))
    at_once = part(1, end(Kind.EXCEPTION, 5.0 + SAME_MOMENT_S / 2))
    assert told(verdict(reaction, at_once))[:2] == (Kind.EXCEPTION, "n1")
    rival = part(0, end(Kind.KILLED, 5.0))
    found = verdict(rival, at_once)
    assert found.sureness == "likely"
    assert "n1" in found.reasons


def test_a_rank_without_a_recorder_that_ended_normally_is_found_too() -> None:
    done = msgspec.structs.replace(stopped(1).ranks[0], state="succeeded", done_s=LOST_S - 0.5)
    found = verdict(lost(0), stopped(1, ranks=(done,)))
    assert told(found) == (Kind.ENDED_EARLY, "n1", "certain")
    whole = part(1, state="succeeded", ended_s=LOST_S - 0.5)
    assert told(verdict(lost(0), whole))[0] is Kind.ENDED_EARLY


def changed(**now: Any) -> Evidence:
    return evidence(network=msgspec.structs.replace(ETH1, **now))


@pytest.mark.parametrize(
    ("found", "kind", "node"),
    [
        (changed(is_there=False, is_up=False, addresses=()), Kind.LINK_DOWN, "n1"),
        (changed(is_up=False), Kind.LINK_DOWN, "n1"),
        (changed(addresses=("10.0.0.9/24",)), Kind.ADDRESS_CHANGED, "n1"),
        (changed(addresses=("10.0.0.1/16",)), Kind.ADDRESS_CHANGED, "n1"),
        (changed(carrier_changes=2), Kind.CONNECTION_BROKE, None),
        (changed(sent=2000, resent=100), Kind.CONNECTION_BROKE, None),
        (
            evidence(stuck=(StuckConnection(peer="10.0.0.2", unacknowledged_bytes=9, resends=6),)),
            Kind.CONNECTION_BROKE,
            None,
        ),
        (changed(sent=9000, resent=10), Kind.UNKNOWN_CAUSE, None),
        (evidence(at_launch=None), Kind.UNKNOWN_CAUSE, None),
        (
            evidence(links=(LinkTry(interface="eth1", trouble="no connection", peer="n0"),)),
            Kind.ONE_WAY_LINK,
            "n0",
        ),
    ],
)
def test_what_changed_around_a_part_explains_a_lost_connection(
    found: Evidence, kind: Kind, node: str | None
) -> None:
    works = (LinkTry(interface="eth1", trouble=None, peer="n1"),)
    judged = verdict(lost(0, evidence=evidence(links=works)), stopped(1, evidence=found))
    assert (judged.problem.kind, judged.problem.node) == (kind, node)
    assert not judged.is_waiting


def test_no_verdict_is_final_before_the_links_are_tried() -> None:
    untried = evidence(links=None)
    parts = lost(0, evidence=evidence()), stopped(1, evidence=untried)
    assert verdict(*parts).is_waiting
    certain = part(0, end(Kind.KILLED)), stopped(1, evidence=untried)
    assert not verdict(*certain).is_waiting
    assert lacks_links(stopped(1, evidence=untried))
    assert not lacks_links(stopped(1, evidence=untried, stopped_after_failure=False))
    assert not lacks_links(part(1, end(Kind.KILLED), evidence=untried))
    assert not lacks_links(lost(1)), "an agent of an older version gathers nothing"


problems = st.builds(
    end,
    st.sampled_from([Kind.CONNECTION_LOST, Kind.TIMED_OUT, Kind.EXCEPTION, Kind.EXIT_CODE]),
    st.none() | st.floats(0, 20),
)
parts = st.lists(
    st.builds(
        lambda number, problem, is_stopped: (stopped if is_stopped else part)(number, problem),
        st.integers(0, 3),
        st.none() | problems,
        st.booleans(),
    ),
    max_size=5,
)


@given(parts)
def test_a_symptom_is_never_the_verdict(parts: list[PartStatus]) -> None:
    found = judge(parts)
    assert (found is None) == all(one.problem is None for one in parts)
    if found is not None:
        assert found.problem.kind not in SYMPTOMS
        assert found.speaks_for
