"""State transitions: every state and event, and every order of events."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.lifecycle.events import (
    EndAwaited,
    EndWished,
    EpisodesJudged,
    EvidenceGathered,
    Exited,
    Launched,
    LinksTried,
    PartEvent,
    RankDone,
    RankDown,
    RankGone,
    RankJoined,
    RankKilled,
    RankStepped,
    RankUp,
    Resumed,
    SavedEvent,
    Stalled,
    StateLost,
    StopAsked,
    Warned,
    WarningOver,
)
from jupyter_mntrain.model.lifecycle.state import apply, new_part
from jupyter_mntrain.model.records.evidence import Evidence, NetworkState
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    Episode,
    JobState,
    Leftover,
    PartStatus,
    RankStatus,
    Stall,
)

STATES: tuple[JobState, ...] = (
    "pending",
    "starting",
    "running",
    "stopping",
    "succeeded",
    "failed",
    "canceled",
    "unknown",
)
FORWARD = {"unknown": 0, "pending": 0, "starting": 1, "running": 2, "stopping": 3}
PROBLEM = Problem(kind=Kind.EXCEPTION, cause="it broke", time_s=5.0)
OOM = Problem(kind=Kind.GPU_OUT_OF_MEMORY, cause="out of memory")
KILLED = Problem(kind=Kind.KILLED, cause="killed by SIGKILL", fix="see dmesg", rank=Rank(1))
HELD = Leftover(
    pid=12, command="/usr/bin/python x.py", status="D (disk sleep)", waits_in="nfs_wait"
)
STALLED = Stalled(stall=Stall(since_s=1.0, limit_s=10.0, step=2, stacks=()))
EVIDENCE = Evidence(time_s=9.0, network=NetworkState(interface="lo", is_there=True, is_up=True))
EVENTS: tuple[PartEvent, ...] = (
    Launched(time_s=1.0),
    RankUp(rank=Rank(0), pid=11),
    RankUp(rank=Rank(1), pid=12),
    RankStepped(rank=Rank(0), step=1),
    RankStepped(rank=Rank(0), step=2),
    RankStepped(rank=Rank(1), step=1),
    RankDown(rank=Rank(0), exit_code=0),
    RankDown(rank=Rank(1), exit_code=0),
    RankDown(rank=Rank(1), exit_code=-9, problem=PROBLEM),
    StopAsked(reason="by user"),
    StopAsked(reason="again"),
    StopAsked(reason="it stalled", problem=PROBLEM),
    EndWished(reason="enough, after saving"),
    RankDone(rank=Rank(0), time_s=3.0),
    RankJoined(rank=Rank(0), size=2),
    Warned(problem=PROBLEM),
    WarningOver(kind=PROBLEM.kind, rank=Rank(0)),
    SavedEvent(step=2),
    SavedEvent(step=4),
    Exited(time_s=9.0, exit_code=0),
    Exited(time_s=9.0, exit_code=1, problem=PROBLEM),
    Exited(time_s=9.0, exit_code=None),
    STALLED,
    EvidenceGathered(evidence=EVIDENCE),
    RankGone(rank=Rank(1), time_s=4.0),
    LinksTried(links=()),
    Resumed(),
    RankKilled(rank=Rank(1), reason="killed by user"),
    EndAwaited(processes=(HELD,)),
    StateLost(problem=PROBLEM),
    StateLost(problem=None),
)


def fresh() -> PartStatus:
    return new_part(NodeId("a" * 32), "node1", range(2))


def in_state(state: JobState) -> PartStatus:
    part = fresh()
    rank_state: JobState = "running" if state in ("running", "stopping") else state
    ranks = tuple(msgspec.structs.replace(rank, state=rank_state) for rank in part.ranks)
    return msgspec.structs.replace(part, state=state, ranks=ranks)


def after(*events: PartEvent) -> PartStatus:
    part = fresh()
    for event in events:
        part = apply(part, event)
    return part


def rank(part: PartStatus, number: int) -> RankStatus:
    return next(status for status in part.ranks if status.rank == number)


@pytest.mark.parametrize("event", EVENTS, ids=repr)
@pytest.mark.parametrize("state", STATES)
def test_every_state_takes_every_event(state: JobState, event: PartEvent) -> None:
    before = in_state(state)
    now = apply(before, event)
    if state in TERMINAL:
        assert now is before or is_more_evidence(now, before)
    elif isinstance(event, Exited):
        assert now.state in TERMINAL
    else:
        assert FORWARD[now.state] >= FORWARD[state]
    assert apply(now, event) == now, "the same event again changes nothing"


def test_the_ordinary_life_of_a_part() -> None:
    part = after(Launched(time_s=1.0))
    assert (part.state, part.started_s) == ("starting", 1.0)
    part = apply(part, RankUp(rank=Rank(0), pid=11, resumed_step=400))
    assert (part.state, part.resumed_step) == ("starting", 400)
    part = apply(part, RankStepped(rank=Rank(1), step=1))
    assert part.state == "running"
    part = apply(part, Exited(time_s=7.0, exit_code=0))
    assert (part.state, part.ended_s, part.exit_code) == ("succeeded", 7.0, 0)
    assert {status.state for status in part.ranks} == {"succeeded"}


def test_a_rank_that_ended_before_the_last_one_came_up_does_not_hold_the_part_at_starting() -> None:
    part = after(
        Launched(time_s=1.0),
        RankUp(rank=Rank(0), pid=11),
        RankDown(rank=Rank(0), exit_code=0),
        RankUp(rank=Rank(1), pid=12),
    )
    assert part.state == "running"


def test_a_launch_told_late_still_says_when_it_was() -> None:
    part = after(RankUp(rank=Rank(0), pid=11), RankUp(rank=Rank(1), pid=12), Launched(time_s=1.0))
    assert (part.state, part.started_s) == ("running", 1.0)


def test_a_stall_is_kept_until_something_gets_on_and_never_begins_while_stopping() -> None:
    stalled = next(one for one in EVENTS if isinstance(one, Stalled))
    part = after(Launched(time_s=1.0), RankUp(rank=Rank(0), pid=11), stalled)
    assert part.stall is not None
    assert apply(part, Resumed()).stall is None
    assert apply(part, LinksTried(links=())).evidence is None, "of nothing that was gathered"
    tried = apply(apply(part, EvidenceGathered(evidence=EVIDENCE)), LinksTried(links=()))
    assert tried.evidence is not None
    assert tried.evidence.links == ()
    assert apply(tried, Resumed()).evidence is None
    ended = apply(part, Exited(time_s=9.0, exit_code=1, problem=PROBLEM))
    assert ended.stall == part.stall, "what it was at when it ended is worth knowing"
    assert after(StopAsked(reason="by user"), stalled).stall is None


def test_what_was_ended_for_a_cause_has_failed_unless_a_person_ends_it_too() -> None:
    running = after(Launched(time_s=1.0), RankUp(rank=Rank(0), pid=11))
    aborted = apply(running, StopAsked(reason="it stalled", problem=PROBLEM))
    assert aborted.state == "stopping"
    ended = apply(aborted, Exited(time_s=9.0, exit_code=-9))
    assert (ended.state, ended.problem) == ("failed", PROBLEM)
    by_user = apply(aborted, StopAsked(reason="by user"))
    ended = apply(by_user, Exited(time_s=9.0, exit_code=-9))
    assert (ended.state, ended.problem, ended.stop_reason) == ("canceled", None, "by user")
    late = apply(by_user, StopAsked(reason="it stalled", problem=PROBLEM))
    assert late == by_user, "whom a person ended has not failed"


def test_a_rank_that_a_person_had_killed_says_so_and_not_what_the_kernel_says() -> None:
    begun = after(Launched(time_s=1.0), RankKilled(rank=Rank(1), reason="killed by user"))
    part = apply(begun, RankDown(rank=Rank(1), exit_code=-9, problem=KILLED))
    ended = apply(part, Exited(time_s=9.0, exit_code=1, problem=KILLED))
    for problem in (rank(ended, 1).problem, ended.problem):
        assert problem is not None
        assert (problem.kind, problem.cause, problem.rank) == (Kind.KILLED, "killed by user", 1)
        assert problem.fix != KILLED.fix
    other = apply(begun, Exited(time_s=9.0, exit_code=1, problem=PROBLEM))
    assert other.problem == PROBLEM, "it failed for a cause of its own"


def test_what_a_stop_waits_for_is_said_until_its_end() -> None:
    assert after(EndAwaited(processes=(HELD,))).waits_for == (), "only while it stops"
    part = after(StopAsked(reason="by user"), EndAwaited(processes=(HELD,)))
    said = "node1: stopping, waiting for pid 12 python (uninterruptible, nfs_wait)"
    assert part.awaited == said
    many = apply(part, EndAwaited(processes=(HELD,) * 5))
    assert many.awaited.endswith(" and 2 more")
    ended = apply(part, Exited(time_s=9.0, exit_code=None))
    assert (ended.state, ended.awaited) == ("canceled", "")


def test_the_newest_checkpoint_counts() -> None:
    assert after(SavedEvent(step=4), SavedEvent(step=2)).saved_step == 4


def test_steps_never_go_back() -> None:
    part = after(RankStepped(rank=Rank(0), step=5), RankStepped(rank=Rank(0), step=3))
    assert rank(part, 0).step == 5


def test_a_rank_that_failed_is_never_part_of_a_success() -> None:
    part = after(RankDown(rank=Rank(1), exit_code=-9), Exited(time_s=9.0, exit_code=0))
    assert part.state == "failed"


def test_a_rank_whose_end_nobody_saw_was_cut_off_by_the_failure_not_guilty_of_it() -> None:
    part = after(
        RankUp(rank=Rank(0), pid=11),
        RankDown(rank=Rank(1), exit_code=1, problem=OOM),
        Exited(time_s=9.0, exit_code=1, problem=PROBLEM),
    )
    assert (part.state, part.problem) == ("failed", PROBLEM)
    assert rank(part, 0).state == "canceled"
    assert (rank(part, 1).state, rank(part, 1).problem) == ("failed", OOM)


@pytest.mark.parametrize(
    ("time_s", "after_failure", "state"),
    [(4.0, True, "failed"), (5.5, True, "canceled"), (4.0, False, "canceled")],
)
def test_a_rank_that_failed_before_its_part_was_stopped_for_another_one_has_failed(
    time_s: float, *, after_failure: bool, state: JobState
) -> None:
    problem = msgspec.structs.replace(OOM, time_s=time_s)
    part = after(
        RankUp(rank=Rank(0), pid=11),
        StopAsked(reason="n2 failed", time_s=5.0, after_failure=after_failure),
        RankDown(rank=Rank(0), exit_code=1, problem=problem),
    )
    assert rank(part, 0).state == state


def test_an_unknown_exit_code_is_not_success() -> None:
    assert after(Launched(time_s=1.0), Exited(time_s=9.0, exit_code=None)).state == "failed"


@pytest.mark.parametrize("exit_code", [0, 1, -15, None])
def test_what_was_stopped_is_canceled_whatever_its_exit_code_and_has_no_cause(
    exit_code: int | None,
) -> None:
    part = after(
        Launched(time_s=1.0),
        StopAsked(reason="by user"),
        StopAsked(reason="again"),
        RankDown(rank=Rank(0), exit_code=-15),
        Exited(time_s=9.0, exit_code=exit_code, problem=PROBLEM),
    )
    assert (part.state, part.stop_reason, part.problem) == ("canceled", "by user", None)
    assert {status.state for status in part.ranks} == {"canceled"}


def test_a_stop_before_the_start_ends_it() -> None:
    part = after(StopAsked(reason="by user"), Launched(time_s=1.0))
    assert part.state == "stopping"
    assert apply(part, Exited(time_s=2.0, exit_code=None)).state == "canceled"


def test_an_event_about_a_rank_of_another_node_changes_nothing() -> None:
    part = after(Launched(time_s=1.0))
    for event in (
        RankUp(rank=Rank(7), pid=1),
        RankStepped(rank=Rank(7), step=1),
        RankDown(rank=Rank(7), exit_code=1),
    ):
        assert apply(part, event) is part


def is_more_evidence(now: PartStatus, before: PartStatus) -> bool:
    return msgspec.structs.replace(now, evidence=before.evidence) == before


def how_it_ended(status: RankStatus) -> RankStatus:
    """Less whom it has met, which is learned later."""
    return msgspec.structs.replace(status, group_size=None)


@given(st.lists(st.sampled_from(EVENTS), max_size=25))
def test_any_order_with_duplicates_only_goes_forward(events: list[PartEvent]) -> None:
    part = fresh()
    for event in events:
        now = apply(part, event)
        if part.state in TERMINAL:
            assert now is part or is_more_evidence(now, part)
        else:
            assert now.state in TERMINAL or FORWARD[now.state] >= FORWARD[part.state]
            assert (now.state in TERMINAL) == isinstance(event, Exited)
        for old, new in zip(part.ranks, now.ranks, strict=True):
            assert old.state not in TERMINAL or how_it_ended(new) == how_it_ended(old)
            assert (new.step or 0) >= (old.step or 0)
        part = now
    if part.state in TERMINAL:
        assert all(status.state in TERMINAL for status in part.ranks)
    if part.state == "succeeded":
        assert all(status.state != "failed" for status in part.ranks)


@given(st.permutations(EVENTS[:8]), st.lists(st.sampled_from(EVENTS[:8]), max_size=4))
def test_a_good_run_ends_the_same_in_whatever_order_its_news_come(
    events: list[PartEvent], late: list[PartEvent]
) -> None:
    part = apply(after(*events), Exited(time_s=9.0, exit_code=0))
    assert (part.state, part.started_s) == ("succeeded", 1.0)
    assert [status.state for status in part.ranks] == ["succeeded", "succeeded"]
    for event in late:
        assert apply(part, event) is part


def test_the_first_warning_of_each_rank_is_kept_and_one_that_is_over_is_history() -> None:
    first, again, other = (
        Problem(kind=kind, cause=cause, rank=Rank(rank))
        for kind, cause, rank in (
            (Kind.LOSS_DIVERGED, "it rose", 0),
            (Kind.LOSS_DIVERGED, "it rose more", 0),
            (Kind.ZERO_GRADIENTS, "nothing is learned", 1),
        )
    )
    part = after(*(Warned(problem=one) for one in (first, again, other)))
    assert part.warnings == (first, other)
    assert apply(part, WarningOver(kind=Kind.LOSS_DIVERGED, rank=Rank(1))) is part
    second = msgspec.structs.replace(first, rank=Rank(1))
    part = apply(part, Warned(problem=second))
    part = apply(part, WarningOver(kind=Kind.LOSS_DIVERGED, rank=Rank(0), time_s=8.0))
    assert part.warnings == (other, second)
    assert [(one.problem, one.end_s) for one in part.episodes] == [(first, 8.0)]
    part = apply(part, WarningOver(kind=Kind.LOSS_DIVERGED, rank=Rank(1), time_s=8.5))
    part = apply(part, Exited(time_s=9.0, exit_code=0))
    assert (part.state, part.problem, part.warnings) == ("succeeded", None, (other,))


def test_a_slow_down_ends_with_its_job_at_the_latest() -> None:
    slow = Problem(kind=Kind.SLOW_RANK, cause="slows the job down", time_s=3.0)
    part = new_part(NodeId("a" * 32), "node1", range(1))
    part = apply(apply(part, Launched(time_s=1.0)), RankUp(rank=Rank(0), pid=7))
    episodes = (Episode(problem=slow, label="slower"),)
    part = apply(part, EpisodesJudged(episodes=episodes))
    assert (part.episodes, part.state) == (episodes, "running")
    ended = apply(part, Exited(time_s=9.0, exit_code=0))
    assert [one.end_s for one in ended.episodes] == [9.0]


def test_the_group_of_a_rank_is_kept() -> None:
    part = after(RankUp(rank=Rank(0), pid=11), RankJoined(rank=Rank(0), size=2))
    assert [status.group_size for status in part.ranks] == [2, None]


def test_that_a_rank_met_nobody_is_known_only_after_its_end() -> None:
    end = RankDown(rank=Rank(0), exit_code=0, time_s=3.0)
    part = after(RankUp(rank=Rank(0), pid=11), end, RankJoined(rank=Rank(0), size=0))
    assert (rank(part, 0).state, rank(part, 0).group_size) == ("succeeded", 0)
