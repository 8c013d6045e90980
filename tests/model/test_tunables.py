"""Tunables: shipped values, changes by file and environment, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import jupyter_mntrain
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import SpecError
from tests.rows import same_rows
from tests.wording import says

PACKAGE = Path(jupyter_mntrain.__file__).parent


@pytest.fixture
def own_file(tmp_path):
    return tmp_path / "config.toml"


def loaded(own_file=None, **environment: str) -> tunables.Tunables:
    if own_file is not None:
        environment["MNTRAIN_CONFIG"] = str(own_file)
    return tunables.load({"XDG_CONFIG_HOME": "/nonexistent", **environment})


def test_every_shipped_setting_has_a_reason_and_is_used_once():
    shipped = [one.key for one in tunables.load({}).by_key.values() if not one.reason]
    assert shipped == []
    used = [
        key
        for path in PACKAGE.rglob("*.py")
        for key in re.findall(r'tunables\.\w+\(\s*"([\w.]+)"', path.read_text())
    ]
    same_rows(
        tunables.load({}).by_key,
        used,
        "no code reads the setting {}: remove it from jupyter_mntrain/tunables.toml",
        "code reads {}, which jupyter_mntrain/tunables.toml has not: add it with unit and reason",
    )
    assert [key for key in set(used) if used.count(key) > 1] == [], "read at two places: pass it on"


def test_the_page_of_settings_says_which_program_reads_each_section():
    page = (PACKAGE.parent / "docs" / "configuration.md").read_text()
    rows = re.findall(r"^\|[^|]*\|[^|]*\| ([a-z, ]+) \|$", page, re.MULTILINE)
    told = [section for row in rows for section in row.split(", ") if row != "sections"]
    same_rows(
        {one.section for one in tunables.load({}).by_key.values()},
        told,
        "section '{}' has no row in docs/configuration.md: add it to that of the program that reads"
        " it, in the table with the column 'sections'",
        "docs/configuration.md names section '{}', which jupyter_mntrain/tunables.toml has not",
    )
    assert len({*told}) == len(told), "docs/configuration.md names a section twice"


def test_a_file_changes_what_it_names_and_nothing_else(own_file):
    own_file.write_text('[cluster]\ndiscovery_s = "1 min"\n\n[limits]\nbody_bytes = "1.5 GiB"\n')
    found = loaded(own_file)
    assert found.error is None
    assert found.by_key["cluster.discovery_s"].value == 60.0
    assert found.by_key["cluster.discovery_s"].source == str(own_file)
    assert found.by_key["limits.body_bytes"].value == 3 << 29
    assert found.by_key["limits.body_bytes"].text == "1536 MiB"
    changed = [key for key, one in found.by_key.items() if one.source != tunables.DEFAULT]
    assert changed == ["cluster.discovery_s", "limits.body_bytes"]


def test_the_environment_wins_over_the_file(own_file):
    own_file.write_text("[cluster]\ndiscovery_s = 60\n")
    found = loaded(own_file, MNTRAIN_CLUSTER_DISCOVERY_S="7", MNTRAIN_AGENT_JOBS_KEPT="5")
    assert found.by_key["cluster.discovery_s"].value == 7.0
    assert found.by_key["cluster.discovery_s"].source == "$MNTRAIN_CLUSTER_DISCOVERY_S"
    assert found.by_key["agent.jobs_kept"].value == 5


@pytest.mark.wording
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[cluster]\ndiscvery_s = 3\n",
            r"cluster\.discvery_s is not a setting .*cluster\.discovery_s",
        ),
        (
            "[clutser]\ndiscovery_s = 3\n",
            r"clutser\.discovery_s is not a setting .*cluster\.discovery_s",
        ),
        ("discovery_s = 3\n", r"discovery_s is not a setting"),
        ('[cluster]\ndiscovery_s = "soon"\n', "'soon' is not a duration; write it like"),
        ("[cluster]\ndiscovery_s = true\n", "True is not a number"),
        ("[cluster]\ndiscovery_s = [3]\n", "is not a number"),
        ("[cluster]\ndiscovery_s = -1\n", "-1 is not from 0.001 to 1e"),
        ("[cluster]\ndiscovery_s = nan\n", "nan is not from"),
        ("[agent]\njobs_kept = 0\n", "0 is not from 1 to"),
        ("[agent]\njobs_kept = 1.5\n", "1.5 is not a whole number"),
        ("[agent]\njobs_kept = nan\n", "nan is not a whole number"),
        ('[limits]\nbody_bytes = "8 parsecs"\n', "is not a size; write it like"),
        ("[liveness]\nlost_after_s = 2\n", "is not more than liveness.suspect_after_s = 2.5 s"),
        ("[cluster\n", "is not TOML"),
    ],
)
def test_a_mistake_is_one_line_and_the_shipped_values_hold(own_file, text, said):
    own_file.write_text(text)
    found = loaded(own_file)
    assert isinstance(found.error, SpecError)
    assert re.search(said, str(found.error))
    assert "\n" not in str(found.error)
    assert {one.source for one in found.by_key.values()} == {tunables.DEFAULT}


@pytest.mark.wording
def test_a_file_of_another_encoding_is_told_to_be_saved_as_utf_8(own_file):
    own_file.write_bytes(b"\xff")
    assert "is not UTF-8 text. Fix: save it as UTF-8." in str(loaded(own_file).error)


def test_a_misspelled_variable_is_refused_with_the_nearest():
    error = loaded(MNTRAIN_CLUSTER_DISCVERY_S="3").error
    assert "use MNTRAIN_CLUSTER_DISCOVERY_S" in str(error)


@pytest.mark.parametrize(
    "variable", ["MNTRAIN_CLUSTER", "MNTRAIN_AGENTS", "MNTRAIN_METRICS_DIR", "MNTRAIN_JOB"]
)
def test_variables_of_another_purpose_are_left_alone(variable):
    assert loaded(**{variable: "x"}).error is None


def test_a_named_file_must_exist_and_the_usual_one_need_not(own_file):
    assert str(own_file) in str(loaded(own_file).error)
    assert says("no file", str(loaded(own_file).error))
    assert loaded().error is None


@pytest.mark.parametrize(
    "command", [["-m", "jupyter_mntrain.cli", "jobs"], ["-m", "jupyter_mntrain.agent", "run"]]
)
def test_programs_refuse_to_start_with_a_mistake(command, tmp_path):
    environment = {"MNTRAIN_CLUSTER_DISCOVERY_S": "soon", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == SpecError.exit_code
    assert done.stderr.count("\n") == 1
    assert "$MNTRAIN_CLUSTER_DISCOVERY_S: 'soon' is not a duration" in done.stderr


def test_what_a_module_takes_is_what_was_set(tmp_path):
    code = "from jupyter_mntrain.model.api import LEASE_EXPIRY_S; print(LEASE_EXPIRY_S)"
    environment = {"MNTRAIN_LAUNCH_LEASE_EXPIRY_S": "1 min", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "60.0\n"
