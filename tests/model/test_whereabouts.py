"""Whereabouts, where the system cannot say: a uid without a name, a folder that was deleted."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_mntrain.model.whereabouts import current_folder, user_name
from jupyter_mntrain.trust.driver_membership import own_driver_name

IN_A_DELETED_FOLDER = """
import os, sys
from jupyter_mntrain.cli import main
os.rmdir(os.getcwd())
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found"), OSError("No username")])
def test_a_uid_without_a_name_is_told_by_its_number(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def nobody() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert user_name() == f"uid-{os.getuid()}"
    assert own_driver_name().startswith("uid-")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a uid without a name")
def test_a_uid_that_has_no_name_here() -> None:
    as_nobody = "import getpass, os; from jupyter_mntrain.model import whereabouts\n"
    as_nobody += "os.setuid(1000620000); print(whereabouts.user_name())\n"
    as_nobody += "whereabouts.name_user(); print(getpass.getuser())"
    environment = {key: value for key, value in os.environ.items() if not key.endswith("NAME")}
    for name in ("USER", "LNAME"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", as_nobody],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "uid-1000620000\n" * 2, done.stderr


def test_a_verb_that_needs_no_folder_works_where_it_was_deleted(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", IN_A_DELETED_FOLDER, "recipes"],
        cwd=gone,
        env={**os.environ, "PWD": str(gone)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_a_deleted_folder_is_the_one_that_the_shell_was_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("PWD", str(gone))
    assert current_folder() == gone
    gone.rmdir()
    assert current_folder() == gone
    monkeypatch.chdir(tmp_path)
