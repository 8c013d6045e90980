"""``config``: the settings in effect, for people and for programs."""

from __future__ import annotations

import json

import pytest

from jupyter_mntrain.cli import main
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.tunables import all_tunables


def test_config_lists_every_setting(capsys):
    assert main(["config"]) == 0
    shown = capsys.readouterr().out
    for one in all_tunables():
        assert one.key in shown


def test_config_of_a_section_says_why(capsys):
    assert main(["config", "watchdog"]) == 0
    shown = capsys.readouterr().out
    assert "watchdog.first_step_s = 300 s  (default)" in shown
    assert "# Limit before the first step, while models" in shown
    assert "liveness" not in shown


def test_config_as_data(capsys):
    assert main(["config", "limits.body_bytes", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["file"].endswith("config.toml")
    [one] = data["settings"]
    assert one["key"] == "limits.body_bytes"
    assert one["value"] == one["default"] == 8 << 20
    assert one["unit"] == "bytes"
    assert one["source"] == "default"
    assert one["reason"]


@pytest.fixture
def nothing_changed(monkeypatch):
    """As for a user who has set nothing: the tests themselves shorten a measurement."""
    monkeypatch.delenv("MNTRAIN_TELEMETRY_PEAK_MEASURE_S", raising=False)
    tunables._current.cache_clear()
    yield
    tunables._current.cache_clear()


@pytest.mark.usefixtures("nothing_changed")
def test_only_what_was_changed(capsys):
    assert main(["config", "--changed", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"] == []
    assert main(["config", "--changed"]) == 0
    assert capsys.readouterr().out.startswith("Nothing is changed")


@pytest.mark.parametrize(
    ("name", "near"), [("clster", "cluster"), ("cluster.discvery_s", "discovery_s")]
)
def test_an_unknown_setting_names_the_nearest(capsys, name, near):
    assert main(["config", name]) == 2
    assert near in capsys.readouterr().err
