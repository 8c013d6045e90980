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
from jupyter_mntrain.model.failure.verdict import Verdict
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.evidence import (
    Disk,
    Evidence,
    GpuHealth,
    LinkTry,
    Neighbor,
    NetworkState,
    StuckConnection,
)
from jupyter_mntrain.model.records.job import PartStatus, RankStatus
from jupyter_mntrain.model.records.node import GpuProcess
from tests.wording import says

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


def test_who_crashed_after_its_end_had_left_early_if_others_still_needed_it() -> None:
    crashed = part(0, end(Kind.CRASHED_AT_END, LOST_S - 0.2))
    assert told(verdict(crashed)) == (Kind.CRASHED_AT_END, "n0", "certain")
    rank = msgspec.structs.replace(crashed.ranks[0], done_s=LOST_S - 0.5)
    left = msgspec.structs.replace(crashed, ranks=(rank,))
    assert told(verdict(left, lost(1))) == (Kind.ENDED_EARLY, "n0", "certain")
    raised = part(1, end(Kind.EXCEPTION, LOST_S - 0.1))
    assert told(verdict(left, raised))[:2] == (Kind.EXCEPTION, "n1")


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
        (changed(carrier_changes=2), Kind.CONNECTION_BROKE, "n1"),
        (changed(carrier_changes=24), Kind.LINK_DOWN, "n1"),
        (changed(sent=2000, resent=100), Kind.CONNECTION_BROKE, "n1"),
        (
            evidence(stuck=(StuckConnection(peer="10.0.0.2", unacknowledged_bytes=9, resends=6),)),
            Kind.CONNECTION_BROKE,
            "n1",
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
    assert judged.problem.time_s == LOST_S
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


def neighbor(mac: str, address: str = "10.0.0.2") -> NetworkState:
    seen = (Neighbor(address=address, mac=mac),)
    return msgspec.structs.replace(ETH1, neighbors=seen)


OWNER = msgspec.structs.replace(ETH1, addresses=("10.0.0.2/24",), mac="aa:01")


@pytest.mark.parametrize(
    ("now", "kind", "node"),
    [("bb:02", Kind.DUPLICATE_ADDRESS, "n1"), ("aa:01", Kind.UNKNOWN_CAUSE, None)],
    ids=["another machine", "the same"],
)
def test_two_machines_with_one_address_are_found(now: str, kind: Kind, node: str | None) -> None:
    seen = evidence(network=neighbor(now), at_launch=neighbor("aa:01"))
    parts = lost(0, evidence=seen), stopped(1, evidence=evidence(network=OWNER, at_launch=OWNER))
    found = verdict(*parts)
    assert told(found)[:2] == (kind, node)
    if node:
        assert says(
            "10.0.0.2 is answered by another machine than at the launch", found.problem.cause
        )
        assert "bb:02" in found.problem.cause
        assert "bb:02" in found.problem.fix


def test_without_a_table_at_launch_the_nodes_own_card_counts() -> None:
    seen = evidence(network=neighbor("bb:02"))
    parts = lost(0, evidence=seen), stopped(1, evidence=evidence(network=OWNER, at_launch=OWNER))
    found = verdict(*parts)
    assert told(found)[:2] == (Kind.DUPLICATE_ADDRESS, "n1")
    assert says("(MAC bb:02 instead of aa:01)", found.problem.cause)


@pytest.mark.parametrize(
    ("symptom", "words"),
    [
        (Kind.CONNECTION_LOST, "lost its connection to another rank"),
        (Kind.TIMED_OUT, "ran into its time-out while it waited for another rank"),
    ],
)
def test_an_unknown_cause_says_what_happened_to_the_rank(symptom: Kind, words: str) -> None:
    found = verdict(part(0, end(symptom), evidence=evidence()), stopped(1))
    assert told(found)[0] is Kind.UNKNOWN_CAUSE
    assert says(words, found.problem.cause)


def test_what_answers_for_a_node_from_the_launch_on_is_no_other_machine() -> None:
    seen = evidence(network=neighbor("bb:02"), at_launch=neighbor("bb:02"))
    parts = lost(0, evidence=seen), stopped(1, evidence=evidence(network=OWNER, at_launch=OWNER))
    assert told(verdict(*parts))[0] is Kind.UNKNOWN_CAUSE


def test_of_two_machines_the_one_that_answered_a_link_try_counts() -> None:
    """Now one of them answers and now the other: the table may be as before again."""
    other = Neighbor(address="10.0.0.2", mac="bb:02")
    link = LinkTry(interface="eth1", trouble="refused", peer="n1", neighbor=other)
    same = neighbor("aa:01")
    seen = evidence(network=same, at_launch=same, links=(link,))
    for known in (evidence(network=OWNER, at_launch=OWNER), None):  # on its way
        parts = lost(0, evidence=seen), stopped(1, evidence=known)
        assert told(verdict(*parts))[:2] == (Kind.DUPLICATE_ADDRESS, "n1")


def test_a_card_that_was_exchanged_is_no_other_machine() -> None:
    newer = msgspec.structs.replace(OWNER, mac="bb:02")
    seen = evidence(network=neighbor("bb:02"), at_launch=neighbor("aa:01"))
    parts = lost(0, evidence=seen), stopped(1, evidence=evidence(network=newer, at_launch=OWNER))
    assert told(verdict(*parts))[0] is Kind.UNKNOWN_CAUSE


def test_an_address_that_nothing_answers_for_is_a_sign_of_a_broken_network() -> None:
    seen = evidence(network=neighbor(""), at_launch=neighbor("aa:01"))
    found = verdict(lost(0, evidence=seen), stopped(1, evidence=evidence()))
    assert told(found) == (Kind.CONNECTION_BROKE, None, "likely")
    assert says("10.0.0.2 does not answer the ARP requests of n0", found.speaks_for[0])


WELL = GpuHealth(index=1, uncorrected_errors=0, memory_bytes=24 << 30)


@pytest.mark.parametrize(
    ("now", "kind", "says_it"),
    [
        ({"trouble": "GPU is lost"}, Kind.GPU_LOST, "GPU 1 does not answer any more: GPU is lost"),
        ({"uncorrected_errors": 2}, Kind.GPU_MEMORY_ERROR, "2 uncorrectable ECC errors"),
        ({"temperature_c": 95.0, "slowed_by": ("too hot (driver)",)}, Kind.GPU_ERROR, "it ended"),
    ],
)
@pytest.mark.parametrize("end_kind", [Kind.GPU_ERROR, Kind.CONNECTION_LOST])
def test_a_broken_card_is_the_cause_of_what_followed(
    now: dict[str, Any], kind: Kind, says_it: str, end_kind: Kind
) -> None:
    card = msgspec.structs.replace(WELL, **now)
    seen = evidence(gpus=(card,), gpus_at_launch=(WELL,))
    found = verdict(part(0, end(end_kind), evidence=seen), stopped(1, evidence=evidence()))
    if kind is Kind.GPU_ERROR and end_kind is Kind.CONNECTION_LOST:
        assert told(found)[0] is Kind.UNKNOWN_CAUSE
        return
    assert told(found) == (kind, "n0", "certain")
    assert says(says_it, found.problem.cause)
    elsewhere = part(1, end(Kind.GPU_ERROR), evidence=evidence()), stopped(0, evidence=seen)
    assert told(verdict(*elsewhere))[:2] == (Kind.GPU_ERROR, "n1")


def test_who_else_holds_a_gpus_memory_is_named_when_it_runs_out() -> None:
    desktop = GpuProcess(pid=7, command="Xorg", memory_bytes=200 << 20)
    other = GpuProcess(pid=4711, user="ada", command="python", memory_bytes=12 << 30)
    card = msgspec.structs.replace(WELL, others=(desktop, other))
    seen = evidence(gpus=(card,), gpus_at_launch=(WELL,))
    found = verdict(part(0, end(Kind.GPU_OUT_OF_MEMORY, cause="CUDA out of memory"), evidence=seen))
    assert found.problem.kind is Kind.GPU_OUT_OF_MEMORY
    expected = "CUDA out of memory; ada, python (pid 4711) holds 12.0 GiB of GPU 1"
    assert says(expected, found.problem.cause)
    assert says("end that process on n0", found.problem.fix)
    alone = verdict(part(0, end(Kind.GPU_OUT_OF_MEMORY), evidence=evidence(gpus=(WELL,))))
    assert alone.problem.cause == "it ended"


@pytest.mark.parametrize(
    ("disk", "kind"),
    [
        (Disk(use="checkpoints", path="/data", free_bytes=4096), Kind.DISK_FULL),
        (Disk(use="job", path="/data", free_bytes=9 << 30, is_read_only=True), Kind.READ_ONLY),
        (Disk(use="temporary files", path="/data", free_bytes=0), Kind.UNKNOWN_CAUSE),
        (Disk(use="job", path="/data", free_bytes=None), Kind.UNKNOWN_CAUSE),
    ],
)
def test_a_full_disk_is_better_than_no_cause(disk: Disk, kind: Kind) -> None:
    found = verdict(lost(0, evidence=evidence()), stopped(1, evidence=evidence(disks=(disk,))))
    assert found.problem.kind is kind
    assert found.problem.time_s == LOST_S
    assert found.sureness != "certain"


def test_an_unknown_cause_tells_of_errors_of_the_agents() -> None:
    seen = evidence(agent=("error 1a2b: cannot read",))
    found = verdict(lost(0, evidence=seen), stopped(1, evidence=evidence()))
    assert says("the agent of n0 had an error: error 1a2b: cannot read", found.problem.cause)


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


TYPO = "AttributeError: module 'torch' has no attribute 'zerros' (typo.py, line 4)"


def test_what_all_ranks_ended_with_is_said_of_all_of_them() -> None:
    """Also where the head had stopped a part whose rank had already failed."""
    found = verdict(
        part(0, end(Kind.EXCEPTION, LOST_S, TYPO)),
        stopped(1, end(Kind.EXCEPTION, LOST_S + 0.4, TYPO)),
        part(2, end(Kind.EXCEPTION, LOST_S + 3.0, TYPO)),
    )
    assert (found.problem.node, found.problem.rank, found.sureness) == (None, None, "certain")
    assert says(f"all ranks: {TYPO}.", found.problem.headline)
    assert found.told_reasons == ""


def test_numbers_in_a_message_do_not_make_it_another_one() -> None:
    found = verdict(
        part(0, end(Kind.GPU_OUT_OF_MEMORY, cause="GPU 0 has 20 MiB at 0x7f")),
        part(1, end(Kind.GPU_OUT_OF_MEMORY, cause="GPU 3 has 31 MiB at 0x8a")),
    )
    assert says("all ranks: GPU 0 has 20 MiB", found.problem.cause)


def test_ranks_that_were_ended_are_not_counted_among_those_alike() -> None:
    found = verdict(
        part(0, end(Kind.EXCEPTION, cause=TYPO)), part(1, end(Kind.EXCEPTION, cause=TYPO)), part(2)
    )
    assert says(f"2 of 3 ranks: {TYPO}", found.problem.cause)


def test_another_end_beside_those_alike_is_still_told() -> None:
    found = verdict(
        part(0, end(Kind.EXCEPTION, cause=TYPO)),
        part(1, end(Kind.EXCEPTION, cause=TYPO)),
        part(2, end(Kind.DISK_FULL, LOST_S + 0.1)),
    )
    assert found.problem.kind is Kind.EXCEPTION
    assert found.sureness == "likely"
    assert [one.kind for one in found.others] == [Kind.DISK_FULL]


def test_what_all_ranks_tell_of_one_of_them_is_said_of_that_one() -> None:
    """As the trainer does with what it refuses."""
    told = [end(Kind.BAD_RECIPE, LOST_S + late, "Read-only file system") for late in (0.0, 0.2)]
    both = [msgspec.structs.replace(one, node="n1", rank=Rank(1)) for one in told]
    first = part(0, both[0], ranks=(RankStatus(rank=Rank(0), state="failed", problem=both[0]),))
    found = verdict(first, part(1, both[1]))
    assert (found.problem.node, found.problem.rank) == ("n1", 1)
    assert says("Read-only", found.problem.cause)


def test_one_rank_and_signals_that_were_sent_to_each_are_said_of_a_rank() -> None:
    assert verdict(part(0, end(Kind.EXCEPTION, cause=TYPO)), part(1)).problem.rank == 0
    assert verdict(part(0, end(Kind.KILLED)), part(1, end(Kind.KILLED))).problem.rank == 0


def test_the_cause_is_not_unknown_before_all_parts_have_told_how_they_end() -> None:
    running = part(1, state="running")
    found = verdict(lost(0, evidence=evidence()), running)
    assert (found.is_waiting, found.problem.kind) == (True, Kind.UNKNOWN_CAUSE)
    assert says("how the ranks on n1 end is not known yet", found.problem.cause)
    found = verdict(lost(0, evidence=evidence()), stopped(1, evidence=evidence()))
    assert not found.is_waiting
    assert says("cause unknown", found.problem.cause)


@pytest.mark.parametrize("is_said", [True, False])
def test_a_rank_that_left_with_exit_code_0_is_found_while_its_torchrun_waits(
    *, is_said: bool
) -> None:
    """It may have called ``os._exit(0)``; what it printed before is why."""
    said = end(Kind.TRACEBACK, LOST_S - 0.5, "printed a traceback and exited with code 0: x")
    gone = RankStatus(
        rank=Rank(1),
        state="running",
        ended_s=LOST_S - 0.5,
        exit_code=0,
        problem=said if is_said else None,
    )
    found = verdict(lost(0), part(1, state="running", ranks=(gone,)))
    kind = Kind.TRACEBACK if is_said else Kind.ENDED_EARLY
    assert told(found) == (kind, "n1", "certain")
    assert found.problem.rank == 1
    if is_said:
        assert found.problem.cause == said.cause
    other = verdict(part(0, end(Kind.EXCEPTION)), part(1, state="succeeded", ranks=(gone,)))
    assert told(other)[:2] == (Kind.EXCEPTION, "n0")
