"""``history``: a node's last hour, day or week in 80 columns, and all of it for programs."""

from __future__ import annotations

import csv

import pytest

from jupyter_mntrain.model.errors import SpecError
from tests.wording import says


def test_a_history_fits_eighty_columns_and_names_jobs_and_gaps(do, text):
    shown = text(do("history", "wopr").renderable, 80)
    assert max(map(len, shown.splitlines())) <= 80
    assert all(word in shown for word in ("CPU", "GPU 0 use", "GPU 0 temperature", "eno1 in"))
    assert "▁" in shown
    assert "j-0123abcd" in shown
    assert says("the agent did not run", shown)


def test_a_time_without_values_is_blank(do, text):
    lines = text(do("history", "wopr").renderable).splitlines()
    (line,) = (one for one in lines if one.strip().startswith("CPU"))
    assert "   " in line.partition("▁")[2]


def test_why_there_are_no_gpus_is_said(do, text, cluster):
    cluster.usage.gpu_note = "no NVIDIA driver"
    shown = text(do("history", "wopr").renderable)
    assert "n/a, no NVIDIA driver" in shown


@pytest.mark.parametrize(("last", "seconds"), [("10 min", 600), ("1d", 86_400), ("1w", 604_800)])
def test_how_long_ago_it_begins_can_be_chosen(do, as_json, last, seconds):
    data = as_json(do("history", "wopr", "--last", last, "--json"))
    assert data["step_s"] * data["points"] == pytest.approx(seconds)
    assert data["parts"][1]["key"] == "GPU-1"


def test_every_value_goes_into_a_spreadsheet(do):
    rows = list(csv.DictReader(do("history", "wopr", "--csv").renderable.splitlines()))
    assert set(rows[0]) == {"time_s", "part", "figure", "mean", "low", "high"}
    known = [one for one in rows if one["part"] == "GPU-1" and one["figure"] == "temperature_c"]
    assert len(known) == 540, "those of the gap are missing"
    assert all(float(one["low"]) <= float(one["mean"]) <= float(one["high"]) for one in known)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["history"], "NODE"),
        (["history", "nobody"], "nobody"),
        (["history", "wopr", "--last", "soon"], "soon"),
        (["history", "wopr", "--last", "8d"], "8d"),
        (["history", "wopr", "--last", "1s"], "1s"),
    ],
)
def test_bad_input_is_one_line_with_a_fix(do, words, told):
    with pytest.raises(SpecError) as caught:
        do(*words)
    assert told in str(caught.value)
    assert caught.value.fix
    assert "\n" not in str(caught.value)
