"""Rank requests: what the ranks of an attempt are asked for, once, and what an agent refuses."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.agent.jobs.rank_requests import ask_for_settings, ask_to_save
from jupyter_mntrain.model.api import SaveRequest
from jupyter_mntrain.model.errors import MntrainError, RecipeError, RefusedError, SpecError
from jupyter_mntrain.model.lifecycle.running_changes import SettingsRequest
from jupyter_mntrain.model.records.job import TRAINER, ChangedValue, JobRecord, RunningChange
from jupyter_mntrain.recipe.stored import RECIPE_FILE
from jupyter_mntrain.telemetry.controls import ControlReader, read_controls
from tests.standin.jobs import record

SPEC = {"entry": ("-m", TRAINER, RECIPE_FILE), "files": {RECIPE_FILE: ""}}
RATE = SettingsRequest("a", 1, ("optimizer.learning_rate=1e-4",), by="ada@lab")


def trains(**part: object) -> JobRecord:
    one = record(spec=SPEC)
    return msgspec.structs.replace(one, part=msgspec.structs.replace(one.part, **part))


def test_a_request_reaches_the_ranks_once_and_beside_others(tmp_path: Path) -> None:
    steps = SettingsRequest("b", 1, ("train.steps=500",))
    wishes = ControlReader(tmp_path)
    ask_to_save(SaveRequest(key="s", attempt=1), tmp_path)
    for request in (RATE, RATE, steps):
        ask_for_settings(request, trains(), tmp_path)
    ask_to_save(SaveRequest(key="t", attempt=1, is_last=True), tmp_path)
    known = read_controls(tmp_path)
    assert (known.saves, known.is_stop) == (("s", "t"), True)
    assert wishes.settings() == (RATE, steps)
    wishes.took_settings(1)
    assert wishes.settings() == (steps,)
    # The answer was lost, and the ranks have taken it: it is asked again.
    taken = RunningChange("a", 3, 3.0, values=(ChangedValue(*RATE.settings[0].split("="), "0.1"),))
    ask_for_settings(RATE, trains(changes=(taken,)), tmp_path)
    assert read_controls(tmp_path) == known


@pytest.mark.parametrize(
    ("request_", "job", "error"),
    [
        (RATE, record(), SpecError),
        (RATE, trains(state="failed"), RefusedError),
        (msgspec.structs.replace(RATE, attempt=2), trains(), RefusedError),
        (msgspec.structs.replace(RATE, settings=("train.batch_size=4",)), trains(), SpecError),
        (msgspec.structs.replace(RATE, settings=("train.steps=no",)), trains(), RecipeError),
        (msgspec.structs.replace(RATE, settings=("nothing.of=that",)), trains(), RecipeError),
    ],
    ids=["script", "over", "another attempt", "fixed", "value", "field"],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, request_: SettingsRequest, job: JobRecord, error: type[MntrainError]
) -> None:
    with pytest.raises(error) as caught:
        ask_for_settings(request_, job, tmp_path)
    assert caught.value.fix
    assert not read_controls(tmp_path).settings


def test_a_job_that_waits_takes_no_settings(tmp_path: Path) -> None:
    waits = record(spec=SPEC, number=0, state="pending")
    with pytest.raises(RefusedError):
        ask_for_settings(msgspec.structs.replace(RATE, attempt=0), waits, tmp_path)


def test_settings_go_together_with_those_that_were_changed_before(tmp_path: Path) -> None:
    value = ChangedValue("train.steps", "100", "20")
    job = trains(changes=(RunningChange("x", 3, 3.0, values=(value,)),))
    warmup = msgspec.structs.replace(RATE, settings=("optimizer.warmup_steps=50",))
    with pytest.raises(RecipeError):
        ask_for_settings(warmup, job, tmp_path)
