"""Contract of sources: requests, options, slots, and what changes between two looks."""

from __future__ import annotations

import shlex

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.sources.source import (
    SECRETS,
    SLOT,
    STATE,
    Allocation,
    NodesRequest,
    Slot,
    SlotCommand,
    SlotState,
    SourceOption,
    Waiting,
    changes,
    checked_values,
)

OPTIONS = (
    SourceOption("partition", help="queue of the scheduler", example="gpu"),
    SourceOption("class", help="class of service", kind="choice", choices=("low", "high")),
    SourceOption("before", help="a line of shell", kind="lines"),
)


def allocation(state: str, *slots: SlotState, grants: int = 0, word: str = "") -> Allocation:
    wait = Problem(Kind.WAITS_FOR_NODES, "all nodes are in use")
    return Allocation(
        "7",
        "slurm",
        state,  # type: ignore[arg-type]
        tuple(Slot(f"slurm-{index}", one) for index, one in enumerate(slots)),
        waiting=Waiting(word, wait) if word else None,
        grants=grants,
        outcome="done" if state == "ended" else None,
    )


def kinds(before: Allocation | None, now: Allocation) -> list[str]:
    return [f"{one.kind} {one.slot}".rstrip() for one in changes(before, now)]


def test_slots_are_named_after_their_source() -> None:
    assert NodesRequest("slurm", 3).slots == ("slurm-0", "slurm-1", "slurm-2")


def test_values_are_those_of_declared_options() -> None:
    given_values = {"partition": ["gpu"], "class": [""], "before": ["module load a", "b"]}
    assert checked_values("SLURM", OPTIONS, given_values) == {
        "partition": ("gpu",),
        "before": ("module load a", "b"),
    }


@pytest.mark.parametrize(
    ("values", "fix"),
    [
        ({"partitoin": ["gpu"]}, "partition"),
        ({"partition": ["a", "b"]}, "once"),
        ({"class": ["medium"]}, "low"),
        ({"partition": ["gpu\nrm"]}, "one line"),
    ],
)
@pytest.mark.wording
def test_a_wrong_value_is_one_line_with_its_fix(values: dict[str, list[str]], fix: str) -> None:
    with pytest.raises(SpecError) as raised:
        checked_values("SLURM", OPTIONS, values)
    assert fix in raised.value.fix
    assert "\n" not in str(raised.value)


@given(
    st.lists(st.text(alphabet=st.characters(exclude_characters="\0{}", exclude_categories=["Cs"])))
)
def test_what_a_shell_reads_of_a_command_is_what_was_said(words: list[str]) -> None:
    command = SlotCommand((*words, f"--name={SLOT}", f"{SECRETS}/token", STATE))
    facts = {SLOT: "slurm-1", SECRETS: "/run/s", STATE: "/home/me"}
    told = " ".join(command.filled(facts, shlex.quote))
    expected = [*words, "--name=slurm-1", "/run/s/token", "/home/me"]
    assert shlex.split(told) == expected


def test_a_forecast_is_neither_past_nor_a_year_ahead() -> None:
    wait = Waiting("Resources", Problem(Kind.WAITS_FOR_NODES, "all nodes are in use"))
    assert wait.can_end
    assert wait.forecast_s(0.0) is None
    wait = msgspec.structs.replace(wait, expected_start_s=100.0)
    assert wait.forecast_s(40.0) == 60.0
    assert wait.forecast_s(101.0) is None
    assert wait.forecast_s(100.0 - 365 * 86_400.0) is None


def test_each_change_is_told_once() -> None:
    queued = allocation("pending", "waiting", "waiting", word="Priority")
    other = allocation("pending", "waiting", "waiting", word="Resources")
    begun = allocation("running", "up", "up", grants=1)
    cut = allocation("running", "up", "down", grants=1)
    lost = allocation("running", "up", "gone", grants=1)
    ended = allocation("ended", "gone", "gone", grants=1)
    assert kinds(None, queued) == ["waits"]
    assert kinds(queued, other) == ["waits"]
    assert kinds(other, begun) == ["granted"]
    assert kinds(begun, cut) == ["slot-down slurm-1"]
    assert kinds(cut, begun) == ["slot-up slurm-1"]
    assert kinds(cut, lost) == ["slot-gone slurm-1"]
    assert kinds(lost, ended) == ["ended"]
    for one in (queued, other, begun, cut, lost, ended):
        assert kinds(one, one) == []


def test_nodes_that_were_taken_are_told_even_if_others_came_between_two_looks() -> None:
    begun = allocation("running", "up", "up", grants=1)
    assert kinds(
        begun, allocation("pending", "waiting", "waiting", grants=1, word="BeginTime")
    ) == [
        "taken",
        "waits",
    ]
    assert kinds(begun, allocation("running", "up", "down", grants=2)) == [
        "taken",
        "granted",
        "slot-down slurm-1",
    ]


def test_an_unknown_allocation_changes_nothing() -> None:
    begun = allocation("running", "up", grants=1)
    assert kinds(begun, allocation("unknown", "up")) == []
