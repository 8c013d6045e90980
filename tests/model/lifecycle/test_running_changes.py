"""Changes of a running job: what is remembered of them, and what a restart is told."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.lifecycle.events import SettingsTaken
from jupyter_mntrain.model.lifecycle.restarts import earlier_attempts
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.lifecycle.running_changes import (
    MOST_CHANGES,
    changes_of,
    changes_of_attempt,
    last_values,
    with_change,
)
from jupyter_mntrain.model.lifecycle.state import apply
from jupyter_mntrain.model.records.job import ChangedValue, RunningChange
from tests.standin.jobs import record

STEPS = ChangedValue("train.steps", "100", "200")
RATE = ChangedValue("optimizer.learning_rate", "0.001", "0.0001")


def change(key: str, step: int, *values: ChangedValue) -> RunningChange:
    return RunningChange(key=key, step=step, time_s=float(step), by="ada@lab", values=values)


def test_every_node_tells_of_a_change_and_it_is_known_once() -> None:
    first, second = change("a", 7, STEPS), change("b", 9, RATE)
    records = [record(0), record(1)]
    for place, told in enumerate(((first, second), (second,))):
        part = records[place].part
        for one in (*told, *told):
            part = apply(part, SettingsTaken(change=one))
        assert part.changes == told
        records[place] = msgspec.structs.replace(records[place], part=part)
    view = roll_up(records)
    assert changes_of(view) == changes_of_attempt(view.parts) == (first, second)


def test_what_comes_after_the_end_changes_nothing() -> None:
    ended = record(0, "succeeded").part
    assert apply(ended, SettingsTaken(change=change("a", 7, STEPS))) is ended


def test_the_next_attempt_is_told_of_all_changes() -> None:
    one = record(0)
    part = apply(one.part, SettingsTaken(change=change("a", 7, STEPS)))
    told = earlier_attempts(msgspec.structs.replace(one, part=part))
    assert told is not None
    assert told.changes == (change("a", 7, STEPS),)
    attempt = msgspec.structs.replace(one.attempt, number=2, earlier=told)
    second = msgspec.structs.replace(record(0, number=2), attempt=attempt)
    part = apply(second.part, SettingsTaken(change=change("b", 9, RATE)))
    second = msgspec.structs.replace(second, part=part)
    again = earlier_attempts(second)
    assert again is not None
    assert again.changes == (change("a", 7, STEPS), change("b", 9, RATE))
    assert changes_of(roll_up([second])) == again.changes
    assert changes_of_attempt([part]) == (change("b", 9, RATE),)


def test_of_many_changes_those_in_effect_are_never_forgotten() -> None:
    known: tuple[RunningChange, ...] = (change("rate", 1, RATE),)
    for number in range(2, 99):
        value = ChangedValue("train.steps", str(number), str(number + 1))
        known = with_change(known, change(f"{number}", number, value))
    refused = RunningChange("no", 99, 99.0, refused=Problem(kind=Kind.BAD_RECIPE, cause="late"))
    known = with_change(known, refused)
    assert len(known) == MOST_CHANGES
    assert {name: one.after for name, one in last_values(known).items()} == {
        "optimizer.learning_rate": "0.0001",
        "train.steps": "99",
    }
    assert known[-1] == refused, "whoever asked is told"


def test_a_change_reads_as_from_what_to_what() -> None:
    assert str(change("a", 7, STEPS, RATE)) == (
        "train.steps 100 → 200, optimizer.learning_rate 0.001 → 0.0001"
    )
    assert str(ChangedValue("optimizer.warmup_steps", "", "5")).endswith("– → 5")
